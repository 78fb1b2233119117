"""Peers that stop, die, sleep and come back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from coterie.core import Algorithm
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Report, Watch

from ..world import World, simulate
from .company import DEADLINE, Averaging, Company, eventually, values, within
from .test_peer import Asking, expected


async def until_round_4(company: Company) -> None:
    """Start all, and stop all when the first is through with four rounds."""
    peers: list[Peer] = []

    def stop(report: Report) -> None:
        if report.round == 4:
            for peer in peers:
                peer.stop()

    peers += [company.start(0, Watch(round=stop)), *map(company.start, range(1, company.n))]
    outcomes = await company.outcomes()
    assert not outcomes[0].finished and outcomes[0].rounds == 4


@pytest.mark.parametrize("algorithm", [Averaging(), Asking()])
def test_peers_that_all_stopped_go_on_as_if_they_had_not(
    algorithm: Algorithm, tmp_path: Path
) -> None:
    async def test() -> None:
        company = Company(algorithm, n=4, rounds=9, folder=tmp_path, checkpoint_every=5)
        await until_round_4(company)
        first = [company.start(peer).shelf.rounds() for peer in range(4)]
        assert all(3 in rounds or 4 in rounds for rounds in first)
        outcomes = await company.outcomes()
        assert values(outcomes) == pytest.approx(expected(algorithm, 4, 9), abs=1e-12)
        assert [outcome.rounds for outcome in outcomes.values()] == [9] * 4

    within(test())


def test_bytes_are_counted_over_a_stop(tmp_path: Path) -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=9, folder=tmp_path)
        await until_round_4(company)
        company.start_all()
        exchange = DirectExchange(3)
        simulate(Averaging(), [World(n=3, counts=(4,) * 3).nodes()], exchange, rounds=9)
        outcomes = await company.outcomes()
        assert [outcome.bytes for outcome in outcomes.values()] == exchange.sent.tolist()

    within(test())


def test_what_a_watcher_noted_comes_back_with_the_checkpoint(tmp_path: Path) -> None:
    async def test() -> None:
        company = Company(Averaging(), n=1, rounds=3, folder=tmp_path)
        begun: list[tuple[int, dict[str, Any]]] = []
        for _ in range(2):
            watch = Watch(
                begin=lambda t, note: begun.append((t, note)), note=lambda: {"records": 77}
            )
            company.start(0, watch)
            await company.outcomes()
        assert begun == [(0, {}), (3, {"records": 77})]

    within(test())


def test_a_peer_that_died_comes_back_at_the_current_round_with_its_own_state(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        death, later = threading.Event(), threading.Event()
        pauses = {(2, 5): death, (0, 10): later, (1, 10): later}
        company = Company(Averaging(pauses=pauses), n=3, rounds=14, folder=tmp_path)
        first, second, third = company.start_all()
        await company.stuck((5, 0), {2}, first, second)
        await company.kill(2)
        death.set()
        company.clock.strike(DEADLINE)  # the others go on without it
        await eventually(lambda: first.talk.place == second.talk.place == (10, 0))
        begun: list[int] = []
        third = company.start(2, Watch(begin=lambda t, note: begun.append(t)))
        await eventually(lambda: begun == [10] and third.talk.place == (10, 0))
        assert float(third.state.params[0, 0]) == 6.0  # what it was before round 5
        later.set()
        outcomes = await company.outcomes()
        assert [outcome.rounds for outcome in outcomes.values()] == [14] * 3
        assert len(set(values(outcomes))) == 1  # all heard each other again

    within(test())


def test_a_peer_that_comes_back_in_time_has_missed_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        death = threading.Event()
        company = Company(Averaging(pauses={(2, 5): death}), n=3, rounds=8, folder=tmp_path)
        first, second, _ = company.start_all()
        await company.stuck((5, 0), {2}, first, second)
        await company.kill(2)
        death.set()
        company.start(2)
        outcomes = await company.outcomes()
        assert values(outcomes) == pytest.approx(expected(Averaging(), 3, 8), abs=1e-12)

    within(test())


def test_a_peer_that_slept_skips_to_the_round_of_the_others() -> None:
    async def test() -> None:
        asleep, later = threading.Event(), threading.Event()
        pauses = {(2, 1): asleep, (0, 9): later, (1, 9): later}
        company = Company(Averaging(pauses=pauses), n=3, rounds=12)
        first, second = company.start(0), company.start(1)
        skipped: list[tuple[int, int]] = []
        third = company.start(2, Watch(skip=lambda t, to: skipped.append((t, to))))
        await company.stuck((1, 0), {2}, first, second)
        company.hub.part([0, 1], [2])
        company.clock.strike(DEADLINE)
        await eventually(lambda: first.talk.place == second.talk.place == (9, 0))
        company.hub.heal()
        await company.settled()
        asleep.set()
        await eventually(lambda: third.talk.place == (9, 0))
        later.set()
        outcomes = await company.outcomes()
        assert skipped == [(2, 9)]
        assert [outcome.rounds for outcome in outcomes.values()] == [12] * 3

    within(test())


def test_parted_halves_go_on_and_meet_again() -> None:
    async def test() -> None:
        parting, low, high = threading.Event(), threading.Event(), threading.Event()
        pauses = {(peer, 3): parting for peer in range(4)}
        pauses |= {(0, 5): low, (1, 5): low, (2, 9): high, (3, 9): high}
        company = Company(Averaging(pauses=pauses), n=4, rounds=12)
        peers = company.start_all()
        await eventually(lambda: all(peer.talk.place == (3, 0) for peer in peers))
        await company.settled()
        company.hub.part([0, 1], [2, 3])
        parting.set()
        await eventually(lambda: company.clock.waiting(DEADLINE) == 4)
        company.clock.strike(DEADLINE)
        places = [(5, 0), (5, 0), (9, 0), (9, 0)]
        await eventually(lambda: [peer.talk.place for peer in peers] == places)
        company.hub.heal()
        await company.settled()
        low.set()
        await eventually(lambda: all(peer.talk.place == (9, 0) for peer in peers))
        high.set()
        outcomes = await company.outcomes()
        assert [outcome.rounds for outcome in outcomes.values()] == [12] * 4
        assert len(set(values(outcomes))) == 1

    within(test())
