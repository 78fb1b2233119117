"""A peer that sends whatever it likes does not stop the others, and learns nothing by it."""

from __future__ import annotations

import logging

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.links import wire
from coterie.links.loopback import Hub
from coterie.runtimes.roll import Place

from .company import RUN, Averaging, Company, eventually, values, within
from .table import Table, ring

SIZE = 115  # parameters of the toy's model


def frame(kind: str, place: Place, rows: dict[str, torch.Tensor] | None = None) -> bytes:
    return wire.encode(wire.Frame(RUN, *place, 2, kind, rows or {}))


def params(value: float, rows: int = 1, size: int = SIZE) -> dict[str, torch.Tensor]:
    return {"params": torch.full((rows, size), value).double()}


class Hostile:
    """Peer 2: greets the others, and then says something that is not allowed."""

    def __init__(self, hub: Hub) -> None:
        self.link = hub.link(2)
        self.welcomed: set[int] = set()

    async def receive(self, sender: int, data: bytes) -> None:
        if wire.peek(data).kind == "hello":
            life = int(wire.decode(data).rows["life"][0])
            await self.link.send(sender, welcome(life))
            self.welcomed.add(sender)

    async def open(self) -> None:
        """Come, and wait until both others know it."""
        await self.link.open(self.receive)
        await self.everybody(hello(77))
        await eventually(lambda: self.welcomed == {0, 1})

    async def everybody(self, *frames: bytes) -> None:
        """Say something to both others."""
        for data in frames:
            for peer in (0, 1):
                await self.link.send(peer, data)


def hello(life: int) -> bytes:
    return frame("hello", (0, 0), {"life": torch.tensor([life])})


def welcome(life: int, begun: int = 0, place: Place = (0, 0)) -> bytes:
    rows = {"life": torch.tensor([life, begun]), "rounds": torch.zeros(0, dtype=torch.int64)}
    return frame("welcome", place, rows)


ATTACKS = {
    "garbage": [b"", b"garbage", b"COT1" + b"\xff" * 100, bytes(1000)],
    "oversized": [b"COT1" + b"\x00\x00\x00\x10" + b"\x7f" * 8 + bytes(16)],
    "not finite": [frame("send", (0, 0), params(float("nan")))],
    "infinite": [frame("send", (0, 0), params(float("inf")))],
    "wrong shape": [frame("send", (0, 0), params(9.0, size=3))],
    "too many rows": [frame("send", (0, 0), params(9.0, rows=1000))],
    "wrong name": [frame("send", (0, 0), {"other": torch.ones(1, SIZE).double()})],
    "wrong type": [frame("send", (0, 0), {"params": torch.ones(1, SIZE)})],
    "wrong round": [frame("send", (t, 0), params(9.0)) for t in (-1, 99, 10**12)],
    "another run": [wire.encode(wire.Frame(bytes(16), 0, 0, 2, "send", params(9.0)))],
    "a false sender": [wire.encode(wire.Frame(RUN, 0, 0, 1, "send", params(9.0)))],
    "a false goodbye": [wire.encode(wire.Frame(RUN, 0, 0, 1, "bye", {}))],
    "unasked answers": [frame("offer", (0, 0), params(9.0)), frame("gone", (0, 0))],
    "claims to be at the end": [frame("at", (4, 0))],
}


def test_one_that_claims_to_be_at_the_end_takes_nobody_there() -> None:
    class Liar(Hostile):
        async def receive(self, sender: int, data: bytes) -> None:
            if wire.peek(data).kind == "hello":
                life = int(wire.decode(data).rows["life"][0])
                await self.link.send(sender, welcome(life, begun=1, place=(4, 0)))
                self.welcomed.add(sender)

    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=3)
        company.start(0), company.start(1)
        await Liar(company.hub).open()
        assert values(await company.outcomes()) == [3.5, 3.5]

    within(test())


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_others_play_on_without_a_hostile_peer(
    attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=3)
        hostile = Hostile(company.hub)
        first, second = company.start(0), company.start(1)
        await hostile.open()
        await hostile.everybody(*ATTACKS[attack], frame("at", (4, 0)))
        assert values(await company.outcomes()) == [3.5, 3.5]
        for peer in (first, second):
            rejected = peer.status().others[2].rejected
            assert rejected == (0 if attack.startswith("claims") else len(ATTACKS[attack]))

    with caplog.at_level(logging.WARNING, "coterie.peer"):
        within(test())
    lines = [record for record in caplog.records if record.message.startswith("frame rejected")]
    assert len(lines) == (0 if attack.startswith("claims") else 2 * len(ATTACKS[attack]))


def test_replayed_frames_count_once() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=1)
        hostile = Hostile(company.hub)
        first, _ = company.start(0), company.start(1)
        await hostile.open()
        good = frame("send", (0, 0), params(6.0))
        await hostile.everybody(good, good, good, frame("at", (2, 0)))
        assert values(await company.outcomes()) == [3.0, 3.0]
        assert first.status().others[2].rejected == 2

    within(test())


def test_a_peer_that_starts_again_and_again_holds_up_nobody() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=30)
        hostile = Hostile(company.hub)
        company.start(0), company.start(1)
        await hostile.open()
        for life in range(1, 200):
            await hostile.everybody(hello(life), frame("at", (31, 0)))
        outcomes = await company.outcomes()
        assert [outcome.rounds for outcome in outcomes.values()] == [30, 30]

    within(test())


def test_a_flood_is_slowed_down_and_bounded() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=3)
        hostile = Hostile(company.hub)
        first, _ = company.start(0), company.start(1)
        await hostile.open()
        await eventually(lambda: first.talk.begun)
        flood = [frame("send", (t, s), params(1.0)) for t in range(3) for s in range(1, 200)]
        await hostile.everybody(*flood)
        assert sum(first.talk.box.held.values()) <= 3 * 256 * len(flood[0])
        await hostile.everybody(frame("at", (4, 0)))
        assert values(await company.outcomes()) == [3.5, 3.5]
        await eventually(lambda: not company.hub.open.keys() - {2})

    within(test())


GOOD = [
    frame("send", (0, 0), params(1.0, size=3)),
    frame("at", (1, 0)),
    frame("ask", (0, 0)),
    frame("bye", (0, 0)),
    frame("offer", (0, 0), params(1.0, size=3)),
    hello(3),
    welcome(1),
]


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_no_frame_whatsoever_raises(data: st.DataObject) -> None:
    table = Table(3)
    table.begin()
    talk = table.talks[0]
    table.say(0, ring(talk))
    good = bytearray(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(0, 6))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    talk.hear(2, bytes(good[:cut] if data.draw(st.booleans()) else good))
    talk.missing()
    talk.collect()
    assert len(table.on_the_way) < 100
