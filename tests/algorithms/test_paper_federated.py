"""Every federated algorithm against a literal, per-client transcription of its paper's box."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import FedAvg
from coterie.core.federated import server_of
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import FederatedSimulation
from tests.algorithms.reference import fedavg
from tests.algorithms.world import N, make_nodes

ROUNDS, SEED = 4, 1
NODES = make_nodes((SEED,))
SAMPLES = NODES.samples.tolist()

some_clients = pytest.mark.parametrize("clients", [N, 3, 1])


def train(i, params, t, **options):
    return NODES[torch.tensor([i])].train(params[None], t, **options)[0]


def cohort_of(algorithm):
    return lambda t: algorithm.cohort().ids(N, SEED, t).tolist()


def start():
    return server_of(NODES).initial_params()[0]


def played(algorithm):
    """The simulation after all rounds."""
    simulation = FederatedSimulation(algorithm, [NODES], DirectExchange(N))
    simulation.start()
    for t in range(ROUNDS):
        simulation.round(t)
    return simulation


def same(rows, expected):
    assert_close(rows, expected, rtol=0, atol=1e-9)


@some_clients
def test_fedavg_follows_algorithm_1(clients):
    algorithm = FedAvg(clients=clients)
    expected = fedavg.run(start(), ROUNDS, train, cohort_of(algorithm), SAMPLES)
    same(played(algorithm).state.params[0], expected)
