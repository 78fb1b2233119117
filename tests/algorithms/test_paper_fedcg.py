"""FedCG against a literal transcription, by hand where it is small, and against FedAvg."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from coterie.algorithms import FedAvg, FedCG
from coterie.algorithms.fedcg import adjacency
from coterie.core import State
from coterie.errors import InputError
from coterie.models import Shape
from coterie.models.fedcg import DomainLayer, DomainNet, FedCGModel, classifier
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import FederatedSimulation
from tests.algorithms.reference import fedcg
from tests.world import PATHS, World, mlp, simulate, ways_to_run

ROUNDS, CLIENTS, EVERY = 4, 3, 2
OPTIONS = FedCGModel(layers=("2",), domains=3, student=0.3)
ALGORITHM = FedCG(clients=CLIENTS, every=EVERY)


def build(options: FedCGModel = OPTIONS) -> nn.Module:
    return DomainNet(mlp(), classifier(Shape((10,), 3), options.domains), options)


WORLD = World(build=build, counts=(8, 9, 10, 12, 5))


def played(algorithm, nodes, state=None):
    simulation = FederatedSimulation(algorithm, [nodes], DirectExchange(nodes.n))
    simulation.start()
    if state is not None:
        simulation.state = state
    first = simulation.state.params.clone()
    for t in range(ROUNDS):
        simulation.round(t)
    return first, simulation.state.params


def batches_of(nodes, k, t):
    one, work = nodes[torch.tensor([k])], nodes.population.work
    order = one.train_data.shuffled(one.seed, one.ids, t, "train", work.steps * work.batch)[0]
    pool = one.train_data.pool
    return [(pool.read(ids, torch.float64), pool.targets[ids]) for ids in order.split(work.batch)]


@pytest.mark.parametrize("path", PATHS)
def test_fedcg_is_its_paper(path):
    nodes = replace(WORLD, path=path).nodes()
    first, last = played(ALGORITHM, nodes)
    named = nodes.layout.unflatten(first[0])
    assert torch.equal(named["adjacency"], torch.eye(3, dtype=torch.float64)), "it starts as eye"
    expected = fedcg.run(
        {name: value.clone() for name, value in named.items()},
        ROUNDS,
        lambda t: ALGORITHM.cohort().ids(nodes.n, 1, t).tolist(),
        nodes.samples.tolist(),
        partial(batches_of, nodes),
        nodes.population.work.lr,
        OPTIONS.student,
        EVERY,
    )
    assert_close(last[0], nodes.layout.flatten(expected), rtol=0, atol=1e-9)


def test_fedcg_with_domains_is_the_same_run_everywhere():
    nodes = WORLD.nodes()
    expected, *others = [simulate(ALGORITHM, *way) for way in ways_to_run(nodes)]
    for models in others:
        assert_close(models, expected, rtol=0, atol=1e-9)


def test_with_lambda_fixed_at_zero_fedcg_is_fedavg_on_the_shared_columns():
    options = replace(OPTIONS, weight=0.0, learned=False)
    ours = replace(WORLD, build=partial(build, options)).nodes()
    theirs = replace(WORLD, build=mlp).nodes()

    def shared(rows):
        named = ours.layout.unflatten(rows)
        plain = {name.removeprefix("base.").replace(".shared", ""): v for name, v in named.items()}
        return theirs.layout.flatten({c.name: plain[c.name] for c in theirs.layout.columns})

    first, last = played(ALGORITHM, ours)
    _, expected = played(FedAvg(clients=CLIENTS), theirs, State(shared(first)))
    assert_close(shared(last), expected, rtol=0, atol=1e-12)


def test_the_adjacency_by_hand():
    made = adjacency(torch.tensor([[0.0], [1.0], [3.0]]), 0.5)
    rows = [[0.5, 0.375, 0.125], [1 / 3, 0.5, 1 / 6], [0.2, 0.3, 0.5]]
    assert_close(made, torch.tensor(rows))


def test_domains_that_are_equal_or_alone_have_an_adjacency():
    assert_close(adjacency(torch.zeros(3, 2), 0.4), torch.full((3, 3), 0.3) + 0.1 * torch.eye(3))
    assert_close(adjacency(torch.zeros(1, 2), 0.5), torch.ones(1, 1))


@pytest.mark.parametrize("projection", ["none", "filterwise", "full", "bottleneck"])
def test_a_convolution_mixes_its_branches_by_the_weights(projection):
    options = FedCGModel(domains=2, projection=projection, relu=False, weight=2.0)
    layer = DomainLayer(nn.Conv2d(3, 4, 3, stride=2, padding=1), options)
    z, weights = torch.randn(5, 3, 6, 6), torch.rand(5, 2)
    layer.route = (weights, torch.eye(2))
    made = layer.parameters_of_domains(torch.eye(2)).view(2, 4, 3, 3, 3)
    branches = [nn.functional.conv2d(z, kernel, None, 2, 1) for kernel in made]
    added = sum(weights[:, d, None, None, None] * branches[d] for d in range(2))
    assert_close(layer(z), layer.shared(z) + 2 * added)


def test_when_judged_the_student_decides_softly_or_hard():
    x = torch.randn(4, 10)
    for soft in (True, False):
        net = build(replace(OPTIONS, soft=soft)).eval()
        scores = net.student(x)
        hard = nn.functional.one_hot(scores.argmax(1), 3).float()
        assert_close(net(x), net._through(x, scores.softmax(1) if soft else hard))


def test_a_layer_that_cannot_have_branches_is_refused():
    with pytest.raises(InputError, match="layer '1' is a ReLU"):
        build(replace(OPTIONS, layers=("1",)))
    with pytest.raises(InputError, match="unknown layer of the base model: 'fc'"):
        build(replace(OPTIONS, layers=("fc",)))
    with pytest.raises(InputError, match="every must be at least 1"):
        FedCG(every=0)
