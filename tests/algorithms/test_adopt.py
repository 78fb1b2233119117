"""What nodes get that did not train with the others."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import (
    IFCA,
    MCFL,
    DePRL,
    Facade,
    FedAvg,
    FedOpt,
    FedProx,
    FedRep,
    FedSGD,
    HypCluster,
    Local,
    Oracle,
    Scaffold,
)
from coterie.core import Algorithm, algorithms
from coterie.core.newcomers import apart, hosts
from coterie.runtimes.lockstep import DirectExchange, FrameExchange
from coterie.runtimes.simulate import simulation_of
from tests.algorithms.test_parity import tiny
from tests.algorithms.world import make_nodes

N, Q = 7, 2  # nodes that train, and newcomers
SEEDS = (1, 4)


def people(seeds=SEEDS, oracle=False):
    """Nodes that train, and newcomers, of every seed."""
    everybody = make_nodes(seeds, n=N + Q, oracle=oracle)
    late = torch.arange(len(everybody)) % (N + Q) >= N
    return apart(everybody, torch.nonzero(~late).flatten()), apart(
        everybody, torch.nonzero(late).flatten()
    )


def played(algorithm, nodes, blocks=1):
    exchange = DirectExchange(N, len(nodes.population.seeds)) if blocks < N else FrameExchange(N)
    parts = [nodes[rows] for rows in torch.arange(len(nodes)).tensor_split(blocks)]
    simulation = simulation_of(algorithm, parts, exchange)
    simulation.start()
    for t in range(3):
        simulation.round(t)
    return simulation


def adopted(algorithm, oracle=False):
    """The simulation, nodes, newcomers and their models."""
    nodes, newcomers = people(oracle=oracle)
    simulation = played(algorithm, nodes)
    ((_, models),) = simulation.adopted(nodes, newcomers)
    return simulation, nodes, newcomers, models


@pytest.mark.parametrize("name", sorted(set(algorithms.entries) - {"local"}))
def test_newcomers_get_the_same_whatever_the_blocks_and_the_link(name):
    nodes, newcomers = people((1,), algorithms[name].oracle)
    ways = [played(tiny(name), nodes, blocks) for blocks in (1, 3, N)]
    models = [
        torch.cat([rows for _, rows in way.adopted(nodes, newcomers)]).contiguous() for way in ways
    ]
    assert models[0].shape == (Q, nodes.layout.size) and models[0].isfinite().all()
    for other in models[1:]:
        assert_close(other, models[0], rtol=0, atol=1e-9)


def test_alone_one_gets_nothing():
    assert adopted(Local())[-1] is None


def takes_the_mean(name):
    """Whether an algorithm says nothing of newcomers, and has no server."""
    return algorithms[name].build.adopt is Algorithm.adopt


@pytest.mark.parametrize("name", list(filter(takes_the_mean, sorted(algorithms.entries))))
def test_without_a_server_newcomers_take_the_mean_of_some_random_nodes(name):
    simulation, nodes, newcomers, models = adopted(tiny(name), algorithms[name].oracle)
    ((_, params),), asked = simulation.personal(), hosts(nodes, newcomers)
    expected = torch.stack([torch.stack([params[i] for i in row]).mean(0) for row in asked])
    assert_close(models, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shared_core", [True, False])
def test_facade_gives_the_mean_core_and_the_mean_head_that_fits(shared_core):
    algorithm = Facade(degree=2, warmup=0, samples=5, shared_core=shared_core)
    simulation, nodes, newcomers, models = adopted(algorithm)
    state, asked = simulation.states[0], hosts(nodes, newcomers)
    for q, row in enumerate(asked):
        core = torch.stack([state.core[i] for i in row]).mean(0)
        heads = [torch.stack([state.heads[i, j] for i in row]).mean(0) for j in range(2)]
        whole = [torch.cat([core, head]) for head in heads]
        losses = [newcomers[torch.tensor([q])].loss(model[None], 0).item() for model in whole]
        assert_close(models[q], whole[losses.index(min(losses))], rtol=0, atol=1e-12)


def test_deprl_gives_the_mean_core_and_trains_a_head_on_it():
    algorithm = DePRL(graph="ring", head_steps=4)
    simulation, nodes, newcomers, models = adopted(algorithm)
    core, head = nodes.layout.core, nodes.layout.head
    asked, state = hosts(nodes, newcomers), simulation.states[0]
    mean = torch.stack([torch.stack([state.core[i] for i in row]).mean(0) for row in asked])
    start = torch.cat([mean, newcomers.initial_params()[:, head]], dim=1)
    assert_close(models[:, core], mean, rtol=0, atol=1e-12)
    assert_close(models, newcomers.train(start, 0, "head", head, steps=4), rtol=0, atol=1e-12)


ONE_MODEL = [FedAvg(clients=3), FedSGD(), FedProx(clients=3), Scaffold(clients=3), FedOpt()]
SEVERAL = [IFCA(models=3, clients=4), IFCA(models=3, shared_core=True), HypCluster(models=3)]


@pytest.mark.parametrize("algorithm", ONE_MODEL, ids=lambda made: type(made).__name__)
def test_a_server_gives_newcomers_its_model(algorithm):
    simulation, _, newcomers, models = adopted(algorithm)
    assert torch.equal(models, newcomers.of_server(simulation.state.params))


@pytest.mark.parametrize("algorithm", SEVERAL, ids=lambda made: type(made).__name__)
def test_of_several_models_newcomers_take_the_one_that_fits_their_train_data(algorithm):
    simulation, _, newcomers, models = adopted(algorithm)
    for q, offered in enumerate(newcomers.of_server(simulation.state.models)):
        me = newcomers[torch.tensor([q])]
        losses = [me.loss(model[None], 0).item() for model in offered]
        assert torch.equal(models[q], offered[losses.index(min(losses))])


def test_fedrep_gives_its_core_and_trains_a_head_on_it():
    algorithm = FedRep(clients=3, head_steps=4, core_steps=1)
    simulation, nodes, newcomers, models = adopted(algorithm)
    head = nodes.layout.head
    core = newcomers.of_server(simulation.state.core)
    start = torch.cat([core, newcomers.initial_params()[:, head]], dim=1)
    assert_close(models, newcomers.train(start, 0, "head", head, steps=4), rtol=0, atol=1e-12)
    assert not simulation.kept[0].slots["head"].shape[0] > len(nodes)


def test_an_oracle_sends_newcomers_to_their_own_cluster():
    simulation, nodes, newcomers, models = adopted(Oracle(degree=2), oracle=True)
    params = simulation.states[0].params
    alike = nodes.cluster.view(-1, N)[newcomers.replica] == newcomers.cluster[:, None]
    for q, row in enumerate(hosts(nodes, newcomers, alike)):
        mine = [i for i in row.tolist() if i >= 0]
        assert {int(nodes.cluster[i]) for i in mine} == {int(newcomers.cluster[q])}
        assert_close(models[q], params[mine].mean(0), rtol=0, atol=1e-12)


def best_alive(state, q, me, metric):
    """The model that Algorithm 1 puts first for newcomer q, one model after the other."""
    r = q // Q
    alive = range(int(state.count[r]))
    scores = [metric(me, state.models[r, m]) * state.popularity[r, m].sqrt() for m in alive]
    return state.models[r, max(alive, key=lambda m: scores[m])]


def validated(me, model):
    return me.accuracy(model[None])[0]


@pytest.mark.parametrize("popularity", ["lineage", "size", "votes"])
def test_mcfl_gives_the_best_model_alive_by_metric_and_popularity(popularity):
    simulation, _, newcomers, models = adopted(MCFL(tolerance=1.0, popularity=popularity))
    state = simulation.states[0]
    assert state.count.min() > 1, "there is something to choose"
    for q in range(len(newcomers)):
        me = newcomers[torch.tensor([q])]
        assert torch.equal(models[q], best_alive(state, q, me, validated))


def without_holdout(nodes):
    empty = dataclasses.replace(nodes.valid_data, count=torch.zeros_like(nodes.valid_data.count))
    return dataclasses.replace(nodes, valid_data=empty)


def test_mcfl_newcomers_that_hold_out_nothing_judge_by_the_samples_they_could_train_on():
    simulation, nodes, newcomers, _ = adopted(MCFL(tolerance=1.0, metric="loss"))
    state, bare = simulation.states[0], without_holdout(newcomers)
    ((_, models),) = simulation.adopted(nodes, bare)

    def on_train(me, model):
        return 1 / (me.loss(model[None], 0)[0] + 1e-12)

    for q in range(len(newcomers)):
        expected = best_alive(state, q, bare[torch.tensor([q])], on_train)
        assert torch.equal(models[q], expected)


def test_mcfl_newcomers_of_whom_some_hold_out_samples_each_use_what_they_have():
    simulation, nodes, newcomers, models = adopted(MCFL(tolerance=1.0))
    some = newcomers.valid_data.count * (torch.arange(len(newcomers)) % 2)
    held = dataclasses.replace(newcomers.valid_data, count=some)
    mixed = dataclasses.replace(newcomers, valid_data=held)
    ((_, found),) = simulation.adopted(nodes, mixed)
    assert torch.equal(found, models)  # here the samples held out are those that are trained on


def test_mcfl_newcomers_that_come_before_anybody_begin_afresh():
    nodes, newcomers = people()
    algorithm = MCFL()
    models = algorithm.adopt(algorithm.start(nodes), nodes, newcomers)
    assert torch.equal(models, newcomers.initial_params())
