"""A server and its clients as peers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from coterie.core import Federated, Listen, Nodes, Nothing, Program, Send, State, mean
from coterie.core.graphs import SERVER
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.pace import Pace
from coterie.runtimes.plan import Report, Watch
from coterie.runtimes.roll import Roll
from coterie.runtimes.simulate import simulation_of

from ..world import World
from .company import DEADLINE, PATIENCE, TICK, Company, eventually, values, within

N = 4
AT_THE_END = -1


@dataclass(frozen=True)
class Adding(Federated):
    """Clients add 1 plus their id to the server's value, the server takes the mean."""

    clients: int = 2
    pauses: dict[tuple[int, int], threading.Event] = field(default_factory=dict, hash=False)

    def start_server(self, server: Nodes) -> State:
        return State(torch.zeros(len(server), server.layout.size, dtype=torch.float64))

    def pause(self, node: int, t: int) -> None:
        pause = self.pauses.get((node, t))
        assert pause is None or pause.wait(60)

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        self.pause(SERVER, t)
        yield Send({"params": state.params}, along=self.down(t, server))
        inbox = yield Listen(self.up(t, server), expect={"params": state.params})
        return State(mean(inbox, "params", otherwise=state.params))

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        clients = nodes[inbox.receiver]
        self.pause(int(nodes.ids[0]), t)
        params = inbox["params"][inbox.sender] + 1 + clients.ids[:, None]
        yield Send({"params": params}, along=self.up(t, nodes), sender=inbox.receiver)
        return state

    def deliver(self, server: State, state: Nothing, nodes: Nodes) -> State:
        self.pause(int(nodes.ids[0]), AT_THE_END)
        return State(nodes.of_server(server.params))


def simulated(algorithm: Federated, rounds: int) -> list[float]:
    simulation = simulation_of(algorithm, [World(n=N, counts=(4,) * N).nodes()], DirectExchange(N))
    simulation.start()
    for t in range(rounds):
        simulation.round(t)
    return torch.cat([models[:, 0] for _, models in simulation.personal()]).tolist()


@pytest.mark.parametrize("some", [1, 2, N])
def test_clients_and_server_play_what_is_simulated(some: int) -> None:
    async def test() -> None:
        company = Company(Adding(clients=some), N, rounds=7)
        company.start_all()
        outcomes = await company.outcomes()
        assert values(outcomes) == pytest.approx(simulated(Adding(clients=some), 7), abs=1e-12)
        assert outcomes[SERVER].personal is None

    within(test())


def test_who_does_not_take_part_follows_the_server() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Adding(1, {(SERVER, 3): pause}), N, rounds=6, window=2)
        peers = company.start_all()
        await eventually(lambda: all(peer.talk.place == (3, 0) for peer in peers))
        await company.settled()
        assert [peer.done for peer in peers] == [3] * (N + 1)
        pause.set()
        outcomes = await company.outcomes()
        assert values(outcomes) == pytest.approx(simulated(Adding(1), 6), abs=1e-12)

    within(test())


def test_clients_wait_for_a_server_that_died_and_it_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        death = threading.Event()
        company = Company(Adding(2, {(SERVER, 3): death}), N, rounds=8, folder=tmp_path)
        *clients, server = company.start_all()
        await eventually(lambda: all(peer.talk.place == (3, 0) for peer in [*clients, server]))
        await company.settled()
        await company.kill(SERVER)
        death.set()
        for _ in range(server.roll.patience):
            await eventually(lambda: company.clock.waiting(TICK) == N)
            await company.settled()
            company.clock.strike(TICK)
        await eventually(lambda: all(client.talk.place == (4, 0) for client in clients))
        await eventually(lambda: company.clock.waiting(PATIENCE) == N)
        begun: list[int] = []
        company.start(SERVER, Watch(begin=lambda t, note: begun.append(t)))
        outcomes = await company.outcomes()
        assert begun == [4]  # where the clients are, with the model of round 3
        assert [outcome.rounds for outcome in outcomes.values()] == [8] * (N + 1)
        assert len(set(values(outcomes))) == 1

    within(test())


def test_a_server_goes_on_without_a_client_that_is_late() -> None:
    async def test() -> None:
        pause = threading.Event()
        company = Company(Adding(N, {(1, 2): pause}), N, rounds=4)
        reports: list[Report] = []
        clients = [company.start(peer) for peer in range(N)]
        server = company.start(SERVER, Watch(round=reports.append))
        await eventually(lambda: server.talk.place == (2, 1) and server.talk.missing() == {1})
        await eventually(lambda: company.clock.waiting(DEADLINE) == 1)
        await company.settled()
        company.clock.strike(DEADLINE)
        await eventually(lambda: server.done == 3)
        pause.set()
        outcomes = await company.outcomes()
        assert [report.missed for report in reports][:3] == [(), (), (1,)]
        assert [outcome.rounds for outcome in outcomes.values()] == [4] * (N + 1)
        assert len({client.done for client in clients}) == 1

    within(test())


def test_a_client_that_comes_back_at_the_end_still_gets_the_servers_model(tmp_path: Path) -> None:
    async def test() -> None:
        death, late = threading.Event(), threading.Event()
        pauses = {(1, 2): death, (2, AT_THE_END): late}
        company = Company(Adding(N, pauses), N, rounds=8, window=2, folder=tmp_path)
        server = company.start_all()[-1]
        await eventually(lambda: server.talk.place == (2, 1) and server.talk.missing() == {1})
        await company.settled()
        await company.kill(1)
        death.set()
        for waiting in (1, N):  # the server, and then everybody, at the end of the window
            await eventually(lambda count=waiting: company.clock.waiting(DEADLINE) == count)
            await company.settled()
            company.clock.strike(DEADLINE)
        await eventually(lambda: server.talk.place == (9, 0))  # where it waits for client 2
        begun: list[int] = []
        company.start(1, Watch(begin=lambda t, note: begun.append(t)))
        await eventually(lambda: 1 not in server.pace.on_the_way() and begun == [7])
        late.set()
        outcomes = await company.outcomes()
        final = float(outcomes[SERVER].state.params[0, 0])
        assert values(outcomes) == [final] * N

    within(test())


def test_everybody_resumes_after_a_stop_of_all(tmp_path: Path) -> None:
    async def test() -> None:
        company = Company(Adding(2), N, rounds=9, folder=tmp_path)
        peers: list = []

        def stop(report: Report) -> None:
            if report.round == 4:
                for peer in peers:
                    peer.stop()

        peers += [*map(company.start, range(N)), company.start(SERVER, Watch(round=stop))]
        assert not (await company.outcomes())[SERVER].finished
        company.start_all()
        outcomes = await company.outcomes()
        assert values(outcomes) == pytest.approx(simulated(Adding(2), 9), abs=1e-12)

    within(test())


def test_a_client_keeps_step_with_its_server_alone() -> None:
    roll = Roll([SERVER, 1, 2], patience=3)
    pace = Pace(roll, rounds=20, window=2, leader=SERVER)
    assert pace.absent() == {SERVER}
    for peer, t in ((SERVER, 5), (1, 15), (2, 15)):
        roll.greet(peer, life=1)
        roll.welcome(peer, begun=True)
        roll.move(peer, (t, 0))
    assert pace.absent() == set()
    assert (pace.current(), pace.jump(5), pace.jump(1)) == (5, 5, 5)
    assert pace.first((), {1: (), 2: ()}) == 5
    assert pace.first((3, 4, 5, 6), {1: (6,), 2: (6,)}) == 5  # the server may have stopped earlier
    assert pace.at_work(5) == {SERVER}
    roll.move(SERVER, (6, 0))
    assert pace.at_work(5) == set()
    roll.leave(SERVER)
    assert pace.absent() == {SERVER}
    roll.entries[SERVER].place = (21, 0)  # it left at the end
    assert pace.absent() == set()
