"""Whom algorithms say that they picked, and which model they would deploy."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import DAC, PENS, PPDL, Local, Oracle, RandomPeers
from coterie.algorithms.keeping import better
from coterie.algorithms.picking import heard_by, nobody
from coterie.core import Fetch
from coterie.core.samples import Samples
from coterie.errors import InputError
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from tests.algorithms.world import N, make_nodes

NODES = make_nodes((1,), oracle=True)
PICKERS = [DAC(2), PENS(3, 2, 1), PPDL(), RandomPeers(2), Oracle(2)]
KEEPERS = [
    DAC(2, keep_best=True),
    PENS(3, 2, 1, keep_best=True),
    RandomPeers(2, keep_best=True),
    Oracle(2, keep_best=True),
    Local(keep_best=True),
]


class Ears(DirectExchange):
    """An exchange that notes who heard whom in the last superstep."""

    def superstep(self, t, step, keys, messages):
        (inbox,) = found = super().superstep(t, step, keys, messages)
        self.heard = [set() for _ in range(N)]
        pairs = zip(inbox.receiver.tolist(), inbox.source[inbox.sender].tolist(), strict=True)
        for row, peer in pairs:
            self.heard[row].add(peer)
        return found


def played(algorithm, rounds):
    simulation = Simulation(algorithm, [NODES], Ears(N))
    simulation.start()
    assert (simulation.states[0].picked == -1).all()
    for t in range(rounds):
        simulation.round(t)
        picked = [{p for p in row if p >= 0} for row in simulation.states[0].picked.tolist()]
        yield picked, simulation.exchange.heard


@pytest.mark.parametrize("algorithm", PICKERS, ids=str)
def test_the_peers_picked_are_those_heard(algorithm):
    for t, (picked, heard) in enumerate(played(algorithm, 4)):
        if isinstance(algorithm, PENS) and t < algorithm.warmup:  # it keeps the best of them
            assert all(len(mine) == algorithm.keep for mine in picked)
            assert all(mine <= there for mine, there in zip(picked, heard, strict=True))
        else:
            assert picked == heard


def test_only_the_oracle_always_picks_its_own_cluster():
    for picked, _ in played(Oracle(2), 3):
        assert all(peer % 2 == me % 2 for me, mine in enumerate(picked) for peer in mine)
    others = [picked for picked, _ in played(RandomPeers(2), 3)]
    assert any(p % 2 != me % 2 for picked in others for me, mine in enumerate(picked) for p in mine)


def test_peers_that_were_not_heard_leave_their_place_empty():
    of = torch.tensor([[1, 2], [0, -1], [-1, -1], [0, 1], [5, 4], [3, 2]])
    message = Fetch({"x": torch.zeros(N, 1)}, of)
    (inbox,) = DirectExchange(N).superstep(0, 0, [torch.arange(N)], [message])
    like = nobody(NODES, 3)
    rows = [[1, 2, -1], [0, -1, -1], [-1] * 3, [0, 1, -1], [4, 5, -1], [2, 3, -1]]
    rows[4] = [5, -1, -1]  # nobody asks itself
    assert heard_by(inbox, like).tolist() == rows
    keep = inbox.table(inbox.source) != 2
    assert heard_by(inbox, like, keep)[0].tolist() == [1, -1, -1]


@pytest.mark.parametrize("algorithm", KEEPERS, ids=str)
def test_the_best_model_by_validation_loss_is_deployed(algorithm):
    simulation = Simulation(algorithm, [NODES], DirectExchange(N))
    simulation.start()
    best = torch.full((N,), torch.inf, dtype=torch.float64)
    for t in range(6):
        simulation.round(t)
        best = torch.minimum(best, NODES.validate(simulation.states[0].params).loss)
    ((_, models),) = simulation.personal()
    assert_close(NODES.validate(models).loss, best, rtol=0, atol=1e-9)
    assert_close(simulation.states[0].best_loss, best, rtol=0, atol=1e-9)


@pytest.mark.parametrize("algorithm", KEEPERS, ids=str)
def test_what_is_deployed_changes_nothing_else(algorithm):
    kept, last = (
        Simulation(one, [NODES], DirectExchange(N))
        for one in (algorithm, type(algorithm)(**{**vars(algorithm), "keep_best": False}))
    )
    for simulation in (kept, last):
        simulation.start()
        for t in range(3):
            simulation.round(t)
    assert torch.equal(kept.states[0].params, last.states[0].params)
    assert last.states[0].best.shape == (N, 0)  # costs no memory
    ((_, models),) = last.personal()
    assert torch.equal(models, last.states[0].params)


def test_a_diverged_model_is_never_the_best():
    good = NODES.initial_params()
    loss = NODES.validate(good).loss.double()
    best, kept = better(good, loss, torch.full_like(good, torch.nan), NODES)
    assert torch.equal(best, good) and torch.equal(kept, loss)


@pytest.mark.parametrize("algorithm", [PPDL(), *KEEPERS], ids=str)
def test_without_validation_samples_there_is_no_best(algorithm):
    held = NODES.valid_data
    none = Samples(held.pool, held.index, held.start, held.count * 0)
    with pytest.raises(InputError, match="needs validation samples, and there are none"):
        algorithm.start(dataclasses.replace(NODES, valid_data=none))
