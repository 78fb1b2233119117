"""A peer that is asked to stop ends, whatever it is waiting for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from coterie.links.link import Link, Receive, Traffic
from coterie.runtimes import peer as runtime
from coterie.runtimes.post import Post
from coterie.runtimes.shelf import Shelf

from .company import Averaging, Company, eventually, within
from .test_peer import Asking


class Closed(Link):
    """Never opens; `refusals` times it ignores that nobody wants it to any more."""

    def __init__(self, refusals: int = 0) -> None:
        self.traffic = Traffic()
        self.refusals = refusals
        self.waits = self.closed = False

    async def open(self, receive: Receive) -> None:
        await self._refuse()

    async def send(self, to: int, frame: bytes) -> None:
        await self._refuse()

    async def _refuse(self) -> None:
        self.waits = True
        while self.refusals >= 0:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.refusals -= 1
        raise asyncio.CancelledError

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def impatient(monkeypatch) -> None:
    """Nobody waits long for what does not come."""
    monkeypatch.setattr(runtime, "CLOSING", 0.05)
    monkeypatch.setattr(runtime, "LAST", 0.05)
    monkeypatch.setattr("coterie.runtimes.post.CLOSING", 0.05)
    monkeypatch.setattr("coterie.links.ending.AGAIN", 0.01)


def test_the_training_at_hand_is_given_up_and_what_was_done_is_kept(
    impatient: None, tmp_path: Path
) -> None:
    async def test() -> None:
        pause = threading.Event()
        algorithm = Averaging(pauses={(0, 1): pause})
        company = Company(algorithm, n=2, rounds=3, folder=tmp_path, checkpoint_every=10)
        trains, waits = company.start_all()
        await company.stuck((1, 0), {0}, waits)
        assert Shelf(tmp_path / "0", kept=9).rounds() == ()
        trains.stop()
        waits.stop()
        outcomes = await company.outcomes()
        pause.set()  # only now would its training end
        assert [(o.rounds, o.finished) for o in outcomes.values()] == [(1, False)] * 2
        assert outcomes[0].personal is None
        assert Shelf(tmp_path / "0", kept=9).rounds() == (0, 1)

    within(test())


def test_a_peer_whose_training_ends_soon_leaves_its_model(monkeypatch) -> None:
    monkeypatch.setattr(runtime, "LAST", 60.0)

    async def test() -> None:
        pause = threading.Event()
        company = Company(Averaging(pauses={(0, 1): pause}), n=1, rounds=3)
        peer = company.start(0)
        await eventually(lambda: peer.talk.place == (1, 0))
        peer.stop()
        pause.set()
        outcome = (await company.outcomes())[0]
        assert (outcome.rounds, outcome.finished) == (1, False)
        assert outcome.personal is not None and float(outcome.personal[0, 0]) == 1.0

    within(test())


@pytest.mark.parametrize("refusals", [0, 3])
def test_a_link_that_never_opens_is_given_up(impatient: None, refusals: int) -> None:
    async def test() -> None:
        company, link = Company(Averaging(), n=2, rounds=3), Closed(refusals)
        peer = company.peer(0, link=link)
        running = asyncio.create_task(peer.run())
        await eventually(lambda: link.waits)
        peer.stop()
        outcome = await running
        assert (outcome.rounds, outcome.finished, outcome.personal) == (0, False, None)
        assert link.closed

    within(test())


def test_frames_that_a_link_never_takes_hold_up_no_end(impatient: None) -> None:
    async def test() -> None:
        link = Closed(refusals=10**9)
        post = Post(link, 1000, lambda error: None)
        post.put(1, b"x")
        await eventually(lambda: link.waits)
        await post.close()
        link.refusals = 0
        (carrier,) = post.carriers.values()
        carrier.cancel()
        await asyncio.wait([carrier])

    within(test())


def test_who_was_stopped_answers_others_for_a_while_only() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Asking(pauses={(1, 1): pause}), n=2, rounds=3)
        peer, behind = company.start_all()
        await eventually(lambda: peer.talk.place == (1, 0) and peer.talk.missing() == {1})
        peer.stop()
        await eventually(lambda: company.clock.waiting(runtime.SERVING) == 1)
        assert peer.talk.owing() == {1} and not company.tasks[0].done()
        company.clock.strike(runtime.SERVING)
        assert not (await company.tasks.pop(0)).finished
        pause.set()
        behind.stop()
        await company.outcomes()

    within(test())


def test_a_peer_that_cannot_say_where_it_is_fails_at_once() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=2, rounds=3)
        peer = company.start(0)

        def broken() -> None:
            raise ZeroDivisionError

        peer.roll.tick = broken  # type: ignore[method-assign]
        await eventually(lambda: company.clock.waiting(peer.tick) == 1)
        company.clock.strike(peer.tick)
        with pytest.raises(ZeroDivisionError):
            await company.tasks.pop(0)

    within(test())
