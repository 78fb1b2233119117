"""A server and its clients in lockstep: who takes part, what they keep, what is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from coterie.core import Cohort, Federated, Listen, Nodes, Program, Send, State, mean
from coterie.core.federated import Down, Up, server_of
from coterie.errors import InputError
from coterie.links import wire
from coterie.runtimes import kept as keeping
from coterie.runtimes.kept import Kept
from coterie.runtimes.lockstep import DirectExchange, FrameExchange
from coterie.runtimes.simulate import FederatedSimulation

from ..world import World, split_into, ways_to_run


@dataclass(frozen=True)
class Clients:
    """What a client of the toy keeps."""

    params: Tensor  # [m, P] its model when it last took part
    choice: Tensor  # [m] how often it took part


@dataclass(frozen=True)
class Toy(Federated):
    """The server averages; a client remembers its last model and how often it took part."""

    def start(self, nodes: Nodes) -> Clients:
        return Clients(nodes.initial_params(), torch.zeros_like(nodes.ids))

    def start_server(self, server: Nodes) -> State:
        return State(server.initial_params())

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        yield Send({"params": state.params}, along=self.down(t, server))
        inbox = yield Listen(self.up(t, server), expect={"params": state.params})
        return State(mean(inbox, "params", otherwise=state.params))

    def round(self, t: int, state: Clients, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        who = inbox.receiver
        params = nodes[who].train((inbox["params"][inbox.sender] + state.params[who]) / 2, t)
        yield Send({"params": params}, along=self.up(t, nodes), sender=who)
        return Clients(state.params.index_copy(0, who, params), state.choice + 1)

    def deliver(self, server: State, state: Clients, nodes: Nodes) -> Clients:
        return replace(state, params=(state.params + nodes.of_server(server.params)) / 2)


@dataclass(frozen=True)
class Lopsided(Toy):
    """The server yields more or less often than the clients."""

    more: int = 1

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        for _ in range(2 + self.more):
            yield Listen(self.up(t, server))
        return state


@dataclass(frozen=True)
class Mute(Toy):
    """Nobody says anything: neither the server nor the clients hear from each other."""

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        inbox = yield Listen(self.up(t, server), expect={"params": state.params})
        return State(mean(inbox, "params", otherwise=state.params))

    def round(self, t: int, state: Clients, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        assert not len(nodes[inbox.receiver].train(inbox["params"][inbox.sender], t))
        return state


def made(algorithm: Federated, nodes: Nodes, blocks: int = 1) -> FederatedSimulation:
    exchange = DirectExchange(nodes.n, len(nodes.population.seeds))
    simulation = FederatedSimulation(algorithm, split_into(nodes, blocks), exchange)
    simulation.start()
    return simulation


def played(simulation: FederatedSimulation, rounds: int = 4, first: int = 0) -> FederatedSimulation:
    for t in range(first, rounds):
        simulation.round(t)
    return simulation


def models(simulation: FederatedSimulation) -> Tensor:
    return torch.cat([rows for _, rows in simulation.personal()])


def sent(simulation: FederatedSimulation) -> list[int]:
    return [*simulation.exchange.server_sent.tolist(), *simulation.exchange.sent.tolist()]


@pytest.mark.parametrize("clients", [1, 3, 6])
def test_blocks_and_frames_change_nothing_with_a_server(clients: int) -> None:
    nodes = World(n=6).nodes()
    ways = [FederatedSimulation(Toy(clients=clients), *way) for way in ways_to_run(nodes)]
    for way in ways:
        way.start()
        played(way)
        assert torch.allclose(way.state.params, ways[0].state.params, rtol=0, atol=1e-12)
        assert torch.allclose(models(way), models(ways[0]), rtol=0, atol=1e-12)
        assert sent(way) == sent(ways[0])
        chosen, expected = way.chosen(), ways[0].chosen()
        assert chosen is not None and expected is not None
        assert torch.equal(chosen, expected)


def test_a_replica_with_a_server_does_what_it_would_do_alone() -> None:
    both = played(made(Toy(clients=2), World(n=6, seeds=(3, 8)).nodes(), blocks=3))
    for number, seed in enumerate((3, 8)):
        alone = played(made(Toy(clients=2), World(n=6, seeds=(seed,)).nodes()))
        mine = slice(6 * number, 6 * number + 6)
        assert torch.allclose(both.state.params[number], alone.state.params[0], rtol=0, atol=1e-12)
        assert torch.allclose(models(both)[mine], models(alone), rtol=0, atol=1e-12)
        assert torch.equal(both.exchange.sent[mine], alone.exchange.sent)
        assert both.exchange.server_sent[number] == alone.exchange.server_sent[0]


def test_the_server_is_a_row_without_data_for_each_replica() -> None:
    server = server_of(World(n=6, seeds=(3, 8)).nodes())
    assert server.key.tolist() == [-2, -1]
    assert server.ids.tolist() == [-1, -1]
    assert server.seed.tolist() == [3, 8]
    assert server.samples.tolist() == [0, 0]
    params = server.initial_params()
    assert torch.equal(server.train(params, 0), params)
    assert not torch.equal(params[0], params[1])


def test_clients_hear_the_server_under_its_id() -> None:
    @dataclass(frozen=True)
    class Asking(Toy):
        def round(self, t: int, state: Clients, nodes: Nodes) -> Program:
            inbox = yield Listen(self.down(t, nodes))
            assert set(inbox.source.tolist()) == {-1}
            assert torch.equal(inbox["params"][inbox.sender], nodes.of_server(inbox["params"]))
            yield Listen(self.up(t, nodes))
            return state

    played(made(Asking(), World(n=6, seeds=(3, 8)).nodes()), 1)


def test_only_those_who_take_part_train_and_keep_a_state() -> None:
    algorithm = Toy(clients=2)
    simulation = played(made(algorithm, World(n=40).nodes()), 3)
    took = {int(i) for t in range(3) for i in algorithm.cohort().ids(40, 1, t)}
    kept = simulation.tensors()
    assert kept["client.key"].tolist() == sorted(took)
    assert simulation.kept[0].slots["params"].shape[0] <= 2 * len(took)
    chosen = simulation.chosen()
    assert chosen is not None
    assert [i for i in range(40) if chosen[i] >= 0] == sorted(took)


def test_a_round_costs_what_its_cohort_costs() -> None:
    @dataclass(frozen=True)
    class Small(Toy):
        def start(self, nodes: Nodes) -> Clients:
            assert len(nodes) <= 2
            return Toy.start(self, nodes)

        def round(self, t: int, state: Clients, nodes: Nodes) -> Program:
            assert len(nodes) == len(state.params) == 2
            return Toy.round(self, t, state, nodes)

    played(made(Small(clients=2), World(n=40).nodes()))


def test_the_cohort_is_drawn_by_everybody_alike_and_anew_every_round() -> None:
    cohort = Cohort(fraction=0.25)
    drawn = [cohort.ids(20, 7, t).tolist() for t in range(30)]
    assert all(len(set(ids)) == 5 and ids == sorted(ids) for ids in drawn)
    assert len({tuple(ids) for ids in drawn}) > 20
    assert {i for ids in drawn for i in ids} == set(range(20))
    assert drawn[3] != cohort.ids(20, 8, 3).tolist()
    assert Down(cohort).edges(20, 7, 3).tolist() == [[-1] * 5, drawn[3]]
    assert Up(cohort).edges(20, 7, 3).tolist() == [drawn[3], [-1] * 5]


@pytest.mark.parametrize(
    "cohort, n, size",
    [
        (Cohort(), 7, 7),
        (Cohort(0.1), 100, 10),
        (Cohort(0.29), 100, 29),
        (Cohort(0.01), 7, 1),
        (Cohort(clients=3), 7, 3),
    ],
)
def test_a_cohort_has_the_asked_size_and_at_least_one_client(
    cohort: Cohort, n: int, size: int
) -> None:
    assert cohort.size(n) == size == len(cohort.ids(n, 1, 0))


@pytest.mark.parametrize(
    "cohort", [Cohort(0.0), Cohort(1.5), Cohort(clients=8), Cohort(clients=-1)]
)
def test_an_impossible_cohort_is_refused_before_the_first_round(cohort: Cohort) -> None:
    with pytest.raises(InputError, match=r"fraction|clients"):
        Down(cohort).check(7)


@pytest.mark.parametrize("more, names", [(1, "`serve` yielded"), (-1, "`round` yielded")])
def test_a_server_that_yields_more_or_less_often_is_stopped(more: int, names: str) -> None:
    for blocks in (1, 3):
        simulation = made(Lopsided(more=more), World(n=6).nodes(), blocks)
        with pytest.raises(InputError, match=rf"round 0: {names}.*same number of times"):
            simulation.round(0)


def test_a_round_in_which_nobody_arrives_leaves_the_server_its_model() -> None:
    nodes = World(n=3).nodes()
    for blocks, exchange in ways_to_run(nodes):
        simulation = FederatedSimulation(Mute(), blocks, exchange)
        simulation.start()
        before = simulation.state.params.clone()
        assert torch.equal(played(simulation, 1).state.params, before)
        assert sent(simulation) == [0] * 4


def test_bytes_of_server_and_clients_are_counted_apart() -> None:
    nodes = World(n=6).nodes()
    simulation = played(made(Toy(clients=2), nodes), 1)
    rows = {"params": server_of(nodes).initial_params()}
    size = len(wire.encode(wire.Frame(bytes(16), 0, 0, -1, "send", rows)))
    took = Toy(clients=2).cohort().ids(6, 1, 0).tolist()
    assert sent(simulation) == [2 * size, *(size * (i in took) for i in range(6))]


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_federated_run_that_stopped_goes_on_as_if_it_had_not(tmp_path: Path, blocks: int) -> None:
    path = tmp_path / "part.safetensors"
    nodes = World(n=9).nodes()
    whole = played(made(Toy(clients=3), nodes, blocks), 5)
    played(made(Toy(clients=3), nodes, blocks), 2).save(path, {})
    second = made(Toy(clients=3), nodes, blocks)
    second.load(path)
    played(second, 5, first=2)
    assert torch.equal(second.state.params, whole.state.params)
    mine, theirs = second.tensors(), whole.tensors()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert sent(second) == sent(whole)


def test_a_checkpoint_without_what_the_clients_keep_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Forgetful(Toy):
        def start(self, nodes: Nodes) -> Any:
            return State(nodes.initial_params())

        def round(self, t: int, state: Any, nodes: Nodes) -> Program:
            yield Listen(self.down(t, nodes))
            yield Listen(self.up(t, nodes))
            return state

    path, nodes = tmp_path / "part.safetensors", World(n=6).nodes()
    played(made(Forgetful(), nodes), 1).save(path, {})
    with pytest.raises(InputError, match="belongs to another configuration"):
        made(Toy(), nodes).load(path)


def test_large_states_lie_in_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = World(n=6).nodes()
    expected = models(played(made(Toy(clients=3), nodes)))
    monkeypatch.setattr(keeping, "_home", lambda size, device: torch.device("cpu"))
    again = played(made(Toy(clients=3), nodes))
    assert again.kept[0].slots["params"].device.type == "cpu"
    assert torch.equal(models(again), expected)


def test_states_lie_on_a_gpu_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4_000, 8_000))
    gpu = torch.device("cuda", 0)
    assert keeping._home(1_000, gpu) == gpu
    assert keeping._home(1_001, gpu).type == "cpu"
    assert keeping._home(1_001, torch.device("cpu")).type == "cpu"


def test_what_is_no_part_of_a_deployed_model_is_not_fetched_for_it() -> None:
    @dataclass(frozen=True)
    class Aside(Toy):
        deploys_kept: ClassVar[bool] = False

        def deliver(self, server: State, state: Clients, nodes: Nodes) -> State:
            assert not len(state.params)
            return State(nodes.of_server(server.params))

    simulation = played(made(Aside(clients=3), World(n=6).nodes()))
    assert torch.equal(models(simulation), simulation.state.params.expand(6, -1))


def test_rows_that_were_kept_and_rows_that_are_new_come_in_the_order_asked() -> None:
    nodes = World(n=6).nodes()
    kept = Kept(Toy(), nodes)
    start = Toy().start(nodes)
    kept.put(
        torch.tensor([4, 1]),
        Clients(torch.ones(2, nodes.layout.size).double(), torch.tensor([7, 8])),
    )
    taken = kept.take(torch.tensor([0, 1, 4]))
    assert taken.choice.tolist() == [0, 8, 7]
    assert torch.equal(taken.params[0], start.params[0])
    assert taken.params[1:].eq(1).all()


def test_what_clients_keep_goes_to_the_host_when_a_gpu_has_no_room(monkeypatch) -> None:
    nodes, grown, tried = World(n=6).nodes(), keeping._grown, []

    def full(slots: Tensor, room: int) -> Tensor:
        tried.append(room)
        if len(tried) == 2:
            raise torch.cuda.OutOfMemoryError
        return grown(slots, room)

    monkeypatch.setattr(keeping, "_grown", full)
    kept, state = Kept(Toy(), nodes), Toy().start(nodes)
    for row in range(6):
        kept.put(torch.tensor([row]), Clients(state.params[row : row + 1], state.choice[:1] + row))
    assert tried[1] == tried[2]
    taken = kept.take(torch.arange(6))
    assert torch.equal(taken.params, state.params) and taken.choice.tolist() == [*range(6)]


def test_a_frame_exchange_carries_the_servers_key() -> None:
    nodes = World(n=3).nodes()
    exchange = FrameExchange(3)
    simulation = FederatedSimulation(Toy(), split_into(nodes, 3), exchange)
    simulation.start()
    played(simulation, 1)
    assert exchange.server_sent.tolist() > [0]
    assert not exchange.link.boxes
