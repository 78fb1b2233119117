"""Inside a round nobody looks at a tensor of the GPU: its host goes ahead to the next round."""

from __future__ import annotations

import pytest
import torch

from coterie.algorithms import (
    DAC,
    DPSGD,
    PENS,
    PPDL,
    DePRL,
    DisPFL,
    EpidemicLearning,
    Facade,
    Gossip,
    Local,
    Oracle,
    RandomPeers,
)
from coterie.core import algorithms
from coterie.runtimes.kept import Kept
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import FederatedSimulation, Simulation
from tests.algorithms.world import N, make_nodes
from tests.on_device import (
    Apart,
    HostLooked,
    elsewhere,
    hidden,
    nodes_on_device,
    seen,
    state_on_device,
    state_seen,
)

SEEDS, ROUNDS = (1, 2), 4
LOOKS = {
    "cpu": lambda x: x.cpu(),
    "item": lambda x: x.max().item(),
    "bool": lambda x: bool((x > 0).all()),
    "int": lambda x: int(x[0]),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "nonzero": lambda x: torch.nonzero(x),
    "mask": lambda x: x[x > 0],
    "mask of rows": lambda x: torch.zeros(3)[x > 0],
    "put": lambda x: torch.zeros(3).index_put((x > 0,), torch.ones(())),
    "unique": lambda x: torch.unique(x),
    "unique rows": lambda x: torch.unique(x[:, None], dim=0),
    "equal": lambda x: torch.equal(x, x),
    "bincount": lambda x: torch.bincount(x),
    "repeat": lambda x: torch.repeat_interleave(x, x),
}
NEVER_WAIT = [
    EpidemicLearning(2),
    DPSGD(),
    Facade(degree=2, warmup=1),
    DAC(2),
    DAC(2, two_hop=False, redraw=False, samples=6, keep_best=True),
    PENS(3, 2, 2),
    PENS(2, 1, 1, keep_best=True),
    RandomPeers(2),
    Oracle(4),
    Oracle(2, by_samples=False),
    PPDL(),
    PPDL(smallest=1),
    DisPFL(2),
    DePRL(),
    Gossip(),
    Local(),
]


def begun(algorithm):
    nodes = make_nodes(SEEDS, oracle=True)
    simulation = Simulation(algorithm, [nodes], DirectExchange(N, len(SEEDS)))
    simulation.start()
    return simulation


def moved(simulation, monkeypatch):
    """The same on a device at which the host may not look."""
    there = Simulation(simulation.algorithm, [], DirectExchange(N, len(SEEDS)))
    there.states = [state_on_device(simulation.states[0])]
    there.blocks = [nodes_on_device(simulation.blocks[0], monkeypatch)]
    return there


def played(simulation):
    for t in range(ROUNDS):
        simulation.round(t)
    return state_seen(simulation.states[0])


@pytest.mark.parametrize("algorithm", NEVER_WAIT, ids=str)
def test_a_round_never_waits_for_the_gpu_and_gives_the_same_bits(algorithm, monkeypatch):
    plain = begun(algorithm)
    there = moved(plain, monkeypatch)
    with elsewhere():
        mine = played(there)
    monkeypatch.undo()
    expected = played(plain)
    assert all(torch.equal(mine[name], expected[name]) for name in expected)
    if there.exchange.tally is not None:  # read with the metrics, not before
        there.exchange.tally.sent = seen(there.exchange.tally.sent)
        there.exchange.tally.worst = seen(there.exchange.tally.worst)
    assert torch.equal(there.exchange.sent, plain.exchange.sent)


@pytest.mark.parametrize(
    "name",
    [
        *("fedsgd", "fedavg", "fedprox", "scaffold", "fedadagrad", "fedadam", "fedyogi"),
        *("ifca", "hypcluster"),
    ],
)
def test_a_round_with_a_server_never_waits_either(name, monkeypatch):
    nodes, algorithm = make_nodes(SEEDS), algorithms.build({"name": name})
    plain = FederatedSimulation(algorithm, [nodes], DirectExchange(N, len(SEEDS)))
    plain.start()
    state, block = state_on_device(plain.state), nodes_on_device(nodes, monkeypatch)
    there = FederatedSimulation(algorithm, [block], DirectExchange(N, len(SEEDS)))
    there.state, there.kept = state, [Kept(algorithm, block)]
    with elsewhere():
        for t in range(ROUNDS):
            there.round(t)
    monkeypatch.undo()
    for t in range(ROUNDS):
        plain.round(t)
    mine, expected = state_seen(there.state), state_seen(plain.state)
    assert all(torch.equal(mine[name], expected[name]) for name in expected)


@pytest.mark.parametrize("algorithm", [DAC(2), PENS(3, 2, 2), Oracle(4), PPDL()], ids=str)
def test_whoever_lists_the_edges_on_the_host_gets_the_same_bits_and_waits(algorithm, monkeypatch):
    expected, listed = played(begun(algorithm)), begun(algorithm)
    monkeypatch.setattr(DirectExchange, "_asks_all", lambda *_: False)
    there = moved(listed, monkeypatch)
    with pytest.raises(HostLooked), elsewhere():
        played(there)
    monkeypatch.undo()
    monkeypatch.setattr(DirectExchange, "_asks_all", lambda *_: False)
    mine = played(listed)
    assert all(torch.equal(mine[name], expected[name]) for name in expected)


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_at_the_device_is_noticed(look):
    with pytest.raises(HostLooked):
        LOOKS[look](hidden(torch.tensor([1, 0, 2])))


def test_a_tensor_of_the_host_that_meets_one_of_the_device_is_noticed():
    there, here = hidden(torch.tensor([1, 0, 2])), torch.tensor([3, 4, 5])
    with elsewhere():
        for meet in (lambda: there + here, lambda: here * there, lambda: torch.cat([there, here])):
            with pytest.raises(Apart):
                meet()
        assert torch.equal(
            seen(there + here.to(there.device) + 1 + here[0]), 4 + torch.tensor([4, 4, 7])
        )
        assert torch.equal(seen(there[here - 3]), torch.tensor([1, 0, 2]))
        assert torch.equal(seen(torch.tensor([1.0], device=there.device)), torch.ones(1))
