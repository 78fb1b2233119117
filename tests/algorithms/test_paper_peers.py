"""Algorithms that meet random, similar or known peers, against their papers' boxes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import Gossip
from coterie.algorithms.gossip import GossipState
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from tests.algorithms.reference import gossip
from tests.algorithms.test_paper import NODES, ROUNDS, edges_of, played, same, train
from tests.algorithms.world import N


@pytest.mark.parametrize("variant", ["push", "pull"])
def test_gossip_merges_with_a_random_peer_then_trains(variant):
    algorithm = Gossip(variant)
    expected, ages = gossip.run(NODES.initial_params(), [1] * N, ROUNDS, train, edges_of(algorithm))
    state = played(algorithm)
    same(state.params, expected)
    assert state.age[:, 0].tolist() == ages


@pytest.mark.parametrize("merge", ["age", "equal"])
def test_gossip_counts_models_by_their_age(merge):
    algorithm, ages = Gossip(merge=merge), [1, 5, 2, 9, 1, 3]
    start = GossipState(NODES.initial_params(), torch.tensor(ages).double()[:, None])
    simulation = Simulation(algorithm, [NODES], DirectExchange(N))
    simulation.states = [start]
    for t in range(ROUNDS):
        simulation.round(t)
    expected = gossip.run(
        start.params, ages, ROUNDS, train, edges_of(algorithm), by_age=merge == "age"
    )
    same(simulation.states[0].params, expected[0])
    assert simulation.states[0].age[:, 0].tolist() == expected[1]


def test_gossip_pulls_exactly_one_model_a_node():
    heard = [target for _, target in edges_of(Gossip("pull"))(0)]
    assert sorted(heard) == list(range(N))
    assert_close(torch.tensor(len(edges_of(Gossip("push"))(0))), torch.tensor(N))
