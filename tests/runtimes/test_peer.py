"""Peers at one hub: deadlines, the window, silence, goodbyes. Time passes when a test says so."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from coterie.core import Algorithm, Fetch, GraphSpec, Nodes, Program, State, mix
from coterie.core.graphs import Edges
from coterie.errors import InputError
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.plan import Plan, Report, Watch

from ..world import World, simulate
from .company import DEADLINE, PATIENCE, RUN, TICK, Averaging, Company, eventually, values, within


@dataclass(frozen=True)
class Chain(GraphSpec):
    """Each node tells the next one; the first hears nobody."""

    def edges(self, n: int, seed: int, t: int) -> Edges:
        here = np.arange(n - 1, dtype=np.int64)
        return np.stack([here, here + 1])


@dataclass(frozen=True)
class Asking(Algorithm):
    """Every node asks the next one for its value."""

    pauses: dict[tuple[int, int], threading.Event] = field(default_factory=dict, hash=False)

    def start(self, nodes: Nodes) -> State:
        return State(nodes.ids.double()[:, None].repeat(1, nodes.layout.size))

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        pause = self.pauses.get((int(nodes.ids[0]), t))
        assert pause is None or pause.wait(60)
        inbox = yield Fetch({"params": state.params + 1}, (nodes.ids[:, None] + 1) % nodes.n)
        return State(mix(state.params + 1, inbox, "params"))

    def personal(self, state: State, nodes: Nodes) -> torch.Tensor:
        return state.params


def expected(algorithm: Algorithm, n: int, rounds: int) -> list[float]:
    nodes = World(n=n, counts=(4,) * n).nodes()
    return simulate(algorithm, [nodes], DirectExchange(n), rounds)[:, 0].tolist()


@pytest.mark.parametrize("algorithm", [Averaging(), Asking()])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_peers_play_what_is_simulated(algorithm: Algorithm, n: int) -> None:
    async def test() -> None:
        company = Company(algorithm, n, rounds=6)
        company.start_all()
        outcomes = await company.outcomes()
        assert values(outcomes) == pytest.approx(expected(algorithm, n, 6), abs=1e-12)
        assert all(outcome.finished for outcome in outcomes.values())
        assert not company.hub.open

    within(test())


@pytest.mark.parametrize("algorithm", [Averaging(), Asking()])
def test_it_does_not_matter_how_long_frames_take(algorithm: Algorithm) -> None:
    async def test() -> None:
        for seed in range(3):
            company = Company(algorithm, n=4, rounds=6)
            dice = random.Random(seed)
            company.hub.delay = lambda source, to, dice=dice: dice.choice([0, 0, 0.001, 0.01])
            company.start_all()
            outcomes = await company.outcomes()
            assert values(outcomes) == pytest.approx(expected(algorithm, 4, 6), abs=1e-12)
            assert all(peer.status().rejected == 0 for peer in company.peers.values())

    within(test())


def test_a_peer_that_never_came_is_left_out() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=2)
        first, second = company.start(0), company.start(1)
        await eventually(lambda: first.roll.unheard() == second.roll.unheard() == {2})
        await eventually(lambda: company.clock.waiting(PATIENCE) == 2)
        company.clock.strike(PATIENCE)
        assert values(await company.outcomes()) == [2.5, 2.5]

    within(test())


def test_at_the_deadline_the_superstep_goes_on_without_who_is_late() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Averaging(pauses={(2, 0): pause}), n=3, rounds=1)
        reports: list[Report] = []
        first = company.start(0, Watch(round=reports.append))
        second, third = company.start(1), company.start(2)
        await company.stuck((0, 0), {2}, first, second)
        company.clock.strike(DEADLINE)
        await eventually(lambda: first.talk.place[0] > 1 and second.talk.place[0] > 1)
        pause.set()  # its own deadline is not over: it has what the others sent
        assert values(await company.outcomes()) == [1.5, 1.5, 2.0]
        assert [(report.heard, report.missed) for report in reports] == [(1, (2,))]
        assert third.status().missing == ()

    within(test())


def test_nobody_waits_a_second_time_for_who_has_not_moved() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Averaging(pauses={(2, 1): pause}), n=3, rounds=6, window=3)
        first, second, _ = company.start_all()
        await company.stuck((1, 0), {2}, first, second)
        company.clock.strike(DEADLINE)
        await eventually(lambda: first.done == second.done == 6)
        pause.set()
        assert len(await company.outcomes()) == 3

    within(test())


def test_a_silent_peer_is_away_for_everybody() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Averaging(pauses={(2, 1): pause}), n=3, rounds=3)
        first, second, third = company.start_all()
        await company.stuck((1, 0), {2}, first, second)
        company.hub.part([0, 1], [2])
        for _ in range(first.roll.patience):  # no deadline passes, but nothing is heard
            await eventually(lambda: company.clock.waiting(TICK) == 3)
            await company.settled()
            company.clock.strike(TICK)
        await eventually(lambda: first.done == second.done == 3)
        assert not first.status().others[2].present
        pause.set()
        await eventually(lambda: third.talk.place == (1, 0))
        third.stop()
        assert not (await company.outcomes())[2].finished

    within(test())


def test_a_peer_is_at_most_a_window_ahead_of_the_slowest() -> None:
    async def test() -> None:
        pause = threading.Event()
        algorithm = Averaging(spec=Chain(), pauses={(1, 1): pause})
        company = Company(algorithm, n=2, rounds=9, window=3)
        ahead, behind = company.start_all()
        await eventually(lambda: (ahead.done, behind.done) == (5, 1))
        await eventually(lambda: company.clock.waiting(DEADLINE) == 1)
        assert (ahead.talk.place, ahead.pace.behind(5)) == ((5, 0), {1})
        pause.set()
        await company.outcomes()
        assert behind.status().rejected == 0  # what came early was kept

    within(test())


def test_an_offer_is_there_for_who_asks_late_and_after_the_end() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Asking(pauses={(1, 2): pause}), n=3, rounds=3)
        first, _, third = company.start_all()
        await eventually(lambda: third.talk.place[0] == 4)  # node 2 asks node 0, which is there
        await eventually(lambda: first.talk.place == (2, 0) and first.talk.missing() == {1})
        pause.set()
        assert values(await company.outcomes()) == expected(Asking(), 3, 3)

    within(test())


def test_a_peer_that_stops_says_goodbye_and_nobody_waits_for_it() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=40)
        peers: list = []

        def stop(report: Report) -> None:
            if report.round == 3:
                peers[2].stop()

        peers += [company.start(0), company.start(1), company.start(2, Watch(round=stop))]
        outcomes = await company.outcomes()  # without a single deadline
        assert [o.finished for o in outcomes.values()] == [True, True, False]
        assert [o.rounds for o in outcomes.values()] == [40, 40, 3]

    within(test())


def test_a_peer_can_be_stopped_before_anybody_came() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=3, rounds=4)
        peer = company.start(0)
        await eventually(lambda: company.clock.waiting(PATIENCE) == 1)
        peer.stop()
        outcome = (await company.outcomes())[0]
        assert (outcome.finished, outcome.rounds, values({0: outcome})) == (False, 0, [0.0])

    within(test())


def test_an_error_of_the_algorithm_ends_its_peer_and_no_other() -> None:
    class Failing(Averaging):
        def round(self, t: int, state: State, nodes: Nodes) -> Program:
            if t == 2 and int(nodes.ids[0]) == 1:
                raise ZeroDivisionError
            return (yield from Averaging.round(self, t, state, nodes))

    async def test() -> None:
        company = Company(Failing(), n=3, rounds=5)
        company.start_all()
        with pytest.raises(ZeroDivisionError):
            await company.tasks.pop(1)
        assert [o.rounds for o in (await company.outcomes()).values()] == [5, 5]

    within(test())


def test_a_peer_that_is_cut_off_waits_instead_of_running_through_all_rounds() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Averaging(pauses={(0, 2): pause, (1, 2): pause}), n=3, rounds=8)
        first, second, third = company.start_all()
        await company.stuck((2, 0), {0, 1}, third)
        company.hub.part([0, 1], [2])
        company.clock.strike(DEADLINE)
        await eventually(lambda: company.clock.waiting(PATIENCE) == 1)
        assert third.done == 3
        pause.set()
        await company.stuck((3, 0), {2}, first, second, at=(3, 0))
        company.hub.heal()  # what was sent meanwhile arrives
        outcomes = await company.outcomes()
        assert [o.rounds for o in outcomes.values()] == [8, 8, 8]

    within(test())


def test_what_a_peer_reports() -> None:
    async def test() -> None:
        company = Company(Averaging(), n=2, rounds=3)
        reports: list[Report] = []
        company.start(0, Watch(round=reports.append))
        company.start(1)
        outcomes = await company.outcomes()
        assert [report.round for report in reports] == [1, 2, 3]
        assert [report.scores is None for report in reports] == [True, True, False]
        assert reports[-1].bytes == outcomes[0].bytes > reports[0].bytes > 0
        assert 0 < reports[-1].control <= outcomes[0].control

    within(test())


@pytest.mark.parametrize(
    "change", [{"window": 0}, {"rounds": -1}, {"deadline": 0.0}, {"checkpoint_every": 0}]
)
def test_an_impossible_plan_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        Plan(**{"run": RUN, "peers": (0, 1), "rounds": 3, **change})
