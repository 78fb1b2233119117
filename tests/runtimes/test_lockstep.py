"""Toy programs that use every message, as one block, three, n, and over frames."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.algorithms import DPSGD, EpidemicLearning, Facade, Local
from coterie.core import (
    Algorithm,
    Fetch,
    Full,
    Listen,
    Nodes,
    Program,
    Push,
    Ring,
    Send,
    State,
    mix,
    regular,
)
from coterie.core.draws import below
from coterie.core.graphs import union
from coterie.errors import InputError
from coterie.links import wire
from coterie.runtimes.lockstep import DirectExchange, FrameExchange, play
from coterie.runtimes.simulate import Simulation

from ..world import PATHS, World, simulate, split_into, ways_to_run


class Toy(Algorithm):
    """One model a node."""

    def start(self, nodes: Nodes) -> State:
        return State(nodes.initial_params())

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params


@dataclass(frozen=True)
class Asking(Toy):
    """Asks two peers of its own choice, or nobody, and mixes by their loss on its data."""

    twice: bool = False  # ask the same peer twice

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        chosen = below(nodes.draw("ask", t, 2), nodes.n - 1)
        chosen = chosen + (chosen >= nodes.ids[:, None])
        chosen[:, 1] = chosen[:, 0] if self.twice else -1
        chosen[(nodes.ids + t) % 3 == 0] = -1
        inbox = yield Fetch({"params": state.params, "id": nodes.ids}, chosen)
        losses = nodes[inbox.receiver].loss(inbox["params"][inbox.sender], t)
        params = state.params + inbox.sum("params", torch.exp(-losses))
        return State(params / (1 + inbox.count())[:, None])


@dataclass(frozen=True)
class Relaying(Toy):
    """Three supersteps: push along one graph, fetch from a neighbor, and share two rows a node."""

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        inbox = yield Send({"params": state.params}, nodes.graph(Push(2), t))
        params = mix(state.params, inbox, "params")
        inbox = yield Fetch({"params": params}, ((nodes.ids + t + 1) % nodes.n)[:, None])
        params = mix(params, inbox, "params")
        mine = torch.arange(len(nodes)).repeat_interleave(1 + nodes.ids % 3)  # 1 to 3 rows
        inbox = yield Send({"x": params[mine]}, nodes.graph(Ring(), t), sender=mine)
        return State(mix(params, inbox, "x"))


@dataclass(frozen=True)
class Silent(Toy):
    """A block without an even id listens; the others send."""

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        graph = nodes.graph(regular(2), t)
        speaks = bool((nodes.ids % 2 == 0).any())
        inbox = yield Send({"params": state.params}, graph) if speaks else Listen(graph)
        return State(mix(state.params, inbox, "params"))


@dataclass(frozen=True)
class Hearing(Toy):
    """Node 0 speaks to node 1; all others listen and add up what they heard."""

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        graph = union([np.array([[0], [1]])], nodes.n)
        speaks = bool((nodes.ids == 0).any())
        rows = {"params": state.params}
        inbox = yield Send(rows, graph) if speaks else Listen(graph, expect=rows)
        return State(state.params + inbox.sum("params"))


@dataclass(frozen=True)
class Uneven(Toy):
    """The block of node 0 yields once more than the others."""

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        for _ in range(1 + int((nodes.ids == 0).any())):
            yield Listen(nodes.graph(Ring(), t))
        return state


@dataclass(frozen=True)
class Doubling(Toy):
    """Sends one tensor under two names."""

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        rows = {"params": state.params, "again": state.params}
        inbox = yield Send(rows, nodes.graph(Ring(), t))
        return State(mix(state.params, inbox, "again"))


PARITY = {
    "asking": Asking(),
    "relaying": Relaying(),
    "local": Local(),
    "d-psgd": DPSGD(graph="ring", all_reduce=True),
    "epidemic": EpidemicLearning(degree=2, all_reduce=True),
    "epidemic, pushed": EpidemicLearning(degree=2, variant="local"),
    "facade": Facade(degree=2, warmup=1, samples=5, all_reduce=True),
    "idca": Facade(degree=2, warmup=0, samples=5, shared_core=False),
}


def assert_parity(algorithm: Algorithm, nodes: Nodes) -> Tensor:
    ways = ways_to_run(nodes)
    models = [simulate(algorithm, blocks, exchange) for blocks, exchange in ways]
    for model, (_, exchange) in zip(models, ways, strict=True):
        assert torch.allclose(model, models[0], rtol=0, atol=1e-12)
        assert torch.equal(exchange.sent, ways[0][1].sent)
    return ways[0][1].sent


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", PARITY)
def test_models_and_bytes_do_not_depend_on_the_blocks_or_the_link(name: str, path: str) -> None:
    nodes = World(n=6, path=path, head=("2",)).nodes()
    sent = assert_parity(PARITY[name], nodes)
    assert (sent > 0).any() == (name != "local")


def test_asking_a_peer_twice_does_not_depend_on_the_link() -> None:
    assert_parity(Asking(twice=True), World(n=6).nodes())


def test_sending_a_tensor_under_two_names_does_not_depend_on_the_link() -> None:
    assert_parity(Doubling(), World(n=6).nodes())


def test_a_population_of_one_plays_alone() -> None:
    nodes = World(n=1).nodes()
    for blocks, exchange in ways_to_run(nodes)[::3]:
        algorithm = DPSGD(graph="ring", all_reduce=True)
        assert torch.allclose(
            simulate(algorithm, blocks, exchange), simulate(Local(), [nodes], DirectExchange(1))
        )
        assert exchange.sent.tolist() == [0]


def test_empty_blocks_change_nothing() -> None:
    nodes = World(n=6, head=("2",)).nodes()
    nobody = nodes[torch.arange(0)]
    for algorithm in PARITY.values():
        alone, joined = DirectExchange(6), DirectExchange(6)
        expected = simulate(algorithm, [nodes], alone)
        assert torch.allclose(simulate(algorithm, [nobody, nodes, nobody], joined), expected)
        assert torch.equal(alone.sent, joined.sent)


@pytest.mark.parametrize("name", PARITY)
def test_a_replica_does_what_it_would_do_alone(name: str) -> None:
    both, exchange = World(n=6, seeds=(3, 8), head=("2",)).nodes(), DirectExchange(6, 2)
    alone, single = World(n=6, seeds=(8,), head=("2",)).nodes(), DirectExchange(6)
    together = simulate(PARITY[name], split_into(both, 3), exchange)[6:]
    assert torch.allclose(together, simulate(PARITY[name], [alone], single), rtol=0, atol=1e-12)
    assert torch.equal(exchange.sent[6:], single.sent)


def test_listeners_cost_nothing_and_hear_the_same_over_frames() -> None:
    nodes = World(n=6).nodes()
    direct, frames = DirectExchange(6), FrameExchange(6)
    models = simulate(Silent(), split_into(nodes, 6), direct)
    assert torch.allclose(models, simulate(Silent(), split_into(nodes, 6), frames), atol=1e-12)
    assert torch.equal(direct.sent, frames.sent)
    assert direct.sent[1::2].tolist() == [0, 0, 0]
    assert (direct.sent[::2] > 0).all()


def test_a_listener_that_heard_nobody_adds_nothing_over_frames_too() -> None:
    blocks = split_into(World(n=3).nodes(), 3)
    direct = simulate(Hearing(), blocks, DirectExchange(3))
    assert torch.equal(direct, simulate(Hearing(), blocks, FrameExchange(3)))


def test_bytes_are_counted_at_the_sender_once_for_each_receiver() -> None:
    rows = {"x": torch.zeros(3, 7), "choice": torch.zeros(3, dtype=torch.int64)}
    nodes = World(n=3).nodes()
    exchange = DirectExchange(3)
    exchange.superstep(0, 0, [nodes.key], [Send(rows, nodes.graph(Full(), 0))])
    one = {name: row[:1] for name, row in rows.items()}
    size = len(wire.encode(wire.Frame(bytes(16), 0, 0, 0, "send", one)))
    assert exchange.sent.tolist() == [2 * size] * 3


def test_a_question_counts_at_the_asker_and_the_answer_at_the_asked() -> None:
    exchange = DirectExchange(3)
    of = torch.tensor([[2], [-1], [-1]])
    exchange.superstep(0, 0, [torch.arange(3)], [Fetch({"x": torch.zeros(3, 7)}, of)])
    rows = {"x": torch.zeros(1, 7)}
    ask = len(wire.encode(wire.Frame(bytes(16), 0, 0, 0, "ask", {})))
    offer = len(wire.encode(wire.Frame(bytes(16), 0, 0, 2, "offer", rows)))
    assert exchange.sent.tolist() == [ask, 0, offer]


@pytest.mark.parametrize("blocks", [2, 3, 6])
def test_blocks_that_yield_a_different_number_of_times_are_stopped(blocks: int) -> None:
    nodes = World(n=6).nodes()
    simulation = Simulation(Uneven(), split_into(nodes, blocks), DirectExchange(6))
    simulation.start()
    with pytest.raises(InputError, match=r"round 0: some blocks yielded.*superstep 1"):
        simulation.round(0)


def test_a_program_that_sends_nothing_still_returns_its_state() -> None:
    state = State(torch.zeros(1, 2))

    def program() -> Program:
        return state
        yield

    assert play(0, [torch.arange(1)], [program()], DirectExchange(1)) == [state]
    assert play(0, [], [], DirectExchange(1)) == []


def test_an_error_in_a_program_reaches_the_caller() -> None:
    def program() -> Program:
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        play(0, [torch.arange(1)], [program()], DirectExchange(1))


def test_a_simulation_says_whether_there_was_a_last_program() -> None:
    for algorithm, has in ((Local(), False), (EpidemicLearning(2, all_reduce=True), True)):
        simulation: Any = Simulation(algorithm, [World(n=6).nodes()], DirectExchange(6))
        simulation.start()
        assert simulation.finish(0) is has


def test_after_the_final_average_all_models_are_equal() -> None:
    nodes = World(n=6).nodes()
    models = simulate(EpidemicLearning(2, all_reduce=True), [nodes], DirectExchange(6))
    assert torch.allclose(models, models[:1].expand_as(models), atol=1e-14)
