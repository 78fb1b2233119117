"""FedCG against a literal transcription, by hand where it is small, and against FedAvg."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from coterie.algorithms import FedAvg, FedCG
from coterie.algorithms.domains import (
    adjacency,
    entropy,
    first_adjacency,
    hamming,
    nearest,
    warn_of_collapse,
)
from coterie.core import Nodes, State
from coterie.errors import InputError
from coterie.models import Shape
from coterie.models.fedcg import DomainNet, FedCGModel, classifier, modules_of
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import FederatedSimulation
from tests.algorithms.reference import fedcg
from tests.world import PATHS, World, mlp, normed, simulate, ways_to_run

ROUNDS, CLIENTS, EVERY = 4, 3, 2
OPTIONS = FedCGModel(layers=("2",), domains=3, student=0.3)
ALGORITHM = FedCG(clients=CLIENTS, every=EVERY)
few_samples = pytest.mark.filterwarnings("ignore:FedCG. by round")  # domains may have none
LINEAR, NORM, RELU = "linear", "norm", "relu"
MLP = [("base.0", LINEAR), ("base.1", RELU), ("base.2", LINEAR)]
NORMED = [("base.0", LINEAR), ("base.1", NORM), ("base.2", RELU), ("base.3", LINEAR)]
CASES = {
    "teacher": (OPTIONS, mlp, MLP),
    "clients": (replace(OPTIONS, by="clients"), mlp, MLP),
    "attributes": (replace(OPTIONS, by="attributes"), mlp, MLP),
    "as written": (replace(OPTIONS, centred=False), mlp, MLP),
    "all layers": (replace(OPTIONS, layers=("*",)), normed, NORMED),
}


def build(options: FedCGModel = OPTIONS, base=mlp) -> nn.Module:
    told = options.by == "attributes"
    return DomainNet(
        base(), None if told else classifier(Shape((10,), 3), options.domains), options
    )


def world(options: FedCGModel = OPTIONS, base=mlp, **changes) -> Nodes:
    """Five clients; where the domains are told, the last value of a sample is its own."""
    shape = (11,) if options.by == "attributes" else (10,)
    counts = (8, 9, 10, 12, 5)
    made = World(build=partial(build, options, base), shape=shape, counts=counts, **changes).nodes()
    if options.by == "attributes":
        inputs = made.train_data.pool.inputs
        inputs[:, -1] = torch.arange(len(inputs)) % options.domains
    return made


def played(algorithm, nodes, state=None):
    simulation = FederatedSimulation(algorithm, [nodes], DirectExchange(nodes.n))
    simulation.start()
    if state is not None:
        simulation.state = state
    first, seen = simulation.state.params.clone(), []
    for t in range(ROUNDS):
        simulation.round(t)
        seen.append(simulation.notes().get("domains"))
    return first, simulation.state.params, seen


def batches_of(nodes, k, t):
    one, work = nodes[torch.tensor([k])], nodes.population.work
    order = one.train_data.shuffled(one.seed, one.ids, t, "train", work.steps * work.batch)[0]
    pool = one.train_data.pool
    return [(pool.read(ids, torch.float64), pool.targets[ids]) for ids in order.split(work.batch)]


def transcribed(algorithm, nodes, first, case):
    options, _, layers = case
    rate = options.student
    lr, beta = nodes.population.work.lr, algorithm.own
    state = algorithm.start(nodes)
    drawn = dict(enumerate(state.domain.tolist())) if options.by == "clients" else None
    return fedcg.run(
        {name: value.clone() for name, value in nodes.layout.unflatten(first[0]).items()},
        ROUNDS,
        lambda t: algorithm.cohort().ids(nodes.n, 1, t).tolist(),
        nodes.samples.tolist(),
        partial(batches_of, nodes),
        fedcg.Setting(
            *(layers, options.by, lr, rate, algorithm.every, beta),
            *(algorithm.graph, options.centred),
        ),
        drawn,
    )


@few_samples
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fedcg_is_its_paper(path, case):
    nodes = world(*case[:2], path=path)
    first, last, seen = played(ALGORITHM, nodes)
    named = nodes.layout.unflatten(first[0])
    assert torch.equal(named["adjacency"], torch.eye(3, dtype=torch.float64)), "it starts as eye"
    expected, counts = transcribed(ALGORITHM, nodes, first, case)
    assert_close(last[0], nodes.layout.flatten(expected), rtol=0, atol=1e-9)
    assert_close(torch.stack(seen)[:, 0], torch.stack(counts))


@pytest.mark.parametrize("begin", ["rand", "uniform", "hamming"])
def test_an_adjacency_that_stays_as_it_began_is_the_papers_too(begin):
    algorithm = replace(ALGORITHM, begin=begin, graph=False, own=0.3)
    nodes = world()
    first, last, _ = played(algorithm, nodes)
    before, after = (nodes.layout.unflatten(rows)["adjacency"][0] for rows in (first, last))
    assert torch.equal(before, after) and not torch.equal(before, torch.eye(3).double())
    assert_close(before.sum(1), torch.ones(3).double())
    assert_close(before.diagonal(), torch.full((3,), 0.3).double())
    expected, _ = transcribed(algorithm, nodes, first, CASES["teacher"])
    assert_close(last[0], nodes.layout.flatten(expected), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fedcg_with_domains_is_the_same_run_everywhere(case):
    nodes = world(*case[:2])
    algorithm = replace(ALGORITHM, begin="rand")
    expected, *others = [simulate(algorithm, *way) for way in ways_to_run(nodes)]
    for models in others:
        assert_close(models, expected, rtol=0, atol=1e-9)


@few_samples
@pytest.mark.parametrize("by", ["teacher", "clients"])
def test_replicas_of_fedcg_run_as_they_do_alone(by):
    options, algorithm = replace(OPTIONS, by=by), replace(ALGORITHM, begin="rand")

    def run(*seeds):
        nodes = world(options, seeds=seeds)
        simulation = FederatedSimulation(algorithm, [nodes], DirectExchange(nodes.n, len(seeds)))
        simulation.start()
        for t in range(ROUNDS):
            simulation.round(t)
        return simulation

    alone = [run(seed) for seed in (1, 4)]
    both = run(1, 4)
    expected = torch.cat([simulation.state.params for simulation in alone])
    assert_close(both.state.params, expected, rtol=0, atol=1e-9)
    for name, noted in both.notes().items():
        assert_close(noted, torch.cat([simulation.notes()[name] for simulation in alone]))


def test_with_lambda_fixed_at_zero_fedcg_is_fedavg_on_the_shared_columns():
    ours = world(replace(OPTIONS, weight=0.0, learned=False))
    theirs = World(build=mlp, counts=(8, 9, 10, 12, 5)).nodes()

    def shared(rows):
        named = ours.layout.unflatten(rows)
        plain = {name.removeprefix("base.").replace(".shared", ""): v for name, v in named.items()}
        return theirs.layout.flatten({c.name: plain[c.name] for c in theirs.layout.columns})

    first, last, _ = played(ALGORITHM, ours)
    _, expected, _ = played(FedAvg(clients=CLIENTS), theirs, State(shared(first)))
    assert_close(shared(last), expected, rtol=0, atol=1e-12)


def test_the_adjacency_by_hand():
    made = adjacency(torch.tensor([[0.0], [1.0], [3.0]]), 0.5)
    rows = [[0.5, 0.375, 0.125], [1 / 3, 0.5, 1 / 6], [0.2, 0.3, 0.5]]
    assert_close(made, torch.tensor(rows))


def test_domains_that_are_equal_or_alone_have_an_adjacency():
    assert_close(adjacency(torch.zeros(3, 2), 0.4), torch.full((3, 3), 0.3) + 0.1 * torch.eye(3))
    assert_close(adjacency(torch.zeros(1, 2), 0.5), torch.ones(1, 1))


def test_adjacencies_before_the_first_round_by_hand():
    words = torch.tensor([[7, 2**31 - 1, 2**32 - 1, 0, 0, 0, 0, 0, 0]])
    uniform = torch.full((3, 3), 0.25).double() + 0.25 * torch.eye(3).double()
    assert_close(first_adjacency("eye", words, 0.5)[0], torch.eye(3).double())
    assert_close(first_adjacency("uniform", words, 0.5)[0], uniform)
    assert_close(first_adjacency("rand", words, 0.4)[0, 0], torch.tensor([0.4, 0.2, 0.4]).double())
    assert hamming(4).tolist() == [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
    by_digit = first_adjacency("hamming", torch.zeros(1, 16, dtype=torch.int64), 0.5)[0]
    assert_close(by_digit[0], torch.tensor([0.5, 0.2, 0.2, 0.1]).double())
    assert hamming(32).max() == 5 and hamming(32)[0b10110, 0b00111] == 2


def test_a_client_is_in_the_domain_of_the_nearest_center():
    centers = torch.tensor([[[0.0, 0.0], [4.0, 0.0]]]).expand(3, -1, -1).clone()
    change = torch.tensor([[1.0, 1.0], [3.0, 1.0], [9.0, 9.0]])
    centers[2] = 0  # nobody was heard yet
    assert nearest(change, centers, torch.tensor([1, 0, 1])).tolist() == [0, 1, 1]


def test_k_means_needs_a_client_a_domain():
    with pytest.raises(InputError, match="K-means needs a client a domain in a round, got 2"):
        FedCG(clients=2).start_server(world(replace(OPTIONS, by="clients")))


def test_domains_that_collapse_are_warned_of():
    warn_of_collapse(torch.tensor([[80, 17, 3], [0, 0, 0]]), 20, "teacher")  # not yet
    warn_of_collapse(torch.tensor([[80, 20, 0]]), 20, "attributes")  # nobody is like that
    for counts, by, message in [
        ([[500, 500, 0], [999, 1, 0]], "teacher", r"round 40 1 of 3 .* with 99\.9%"),
        ([[9, 9, 9, 9], [50, 50, 0, 0]], "teacher", r"2 of 4 .* with 50\.0%"),
        ([[96, 4]], "clients", r"2 of 2 .* with 96\.0%"),
        ([[97, 3, 0, 0]], "attributes", r"97\.0% .* are told to be in one"),
    ]:
        with pytest.warns(UserWarning, match=message):
            warn_of_collapse(torch.tensor(counts), 40, by)
    assert_close(entropy(torch.tensor([[3, 3], [5, 0], [0, 0]])), torch.tensor([0.693147, 0, 0]))


def test_a_run_whose_domains_collapse_warns_when_the_teacher_follows():
    nodes = world(replace(OPTIONS, domains=2, by="attributes"))
    nodes.train_data.pool.inputs[:, -1] = 1
    with pytest.warns(UserWarning, match=r"round [24] .* 100\.0% .*; nearly all samples"):
        played(ALGORITHM, nodes)


def test_the_server_notes_domains_entropy_and_every_lambda():
    options = replace(OPTIONS, layers=("0", "2"), weight=0.7)
    nodes = world(options)
    simulation = FederatedSimulation(ALGORITHM, [nodes], DirectExchange(nodes.n))
    simulation.start()
    assert simulation.notes()["lambda 0"].tolist() == [[pytest.approx(0.7)]]
    simulation.round(0)
    notes = simulation.notes()
    assert list(notes) == ["domains", "entropy", "live", "lambda 0", "lambda 2"]
    steps = CLIENTS * nodes.population.work.steps
    assert notes["domains"].sum() == steps * nodes.population.work.batch
    assert notes["lambda 2"] != 0.7
    plain = World().nodes()
    assert not FedCG().notes(FedCG().start_server(plain), plain)
    alone = world(replace(OPTIONS, shared=False))
    assert list(FedCG().notes(FedCG().start_server(alone), alone)) == [
        *("domains", "entropy", "live")
    ]


@pytest.mark.parametrize(
    "projection", ["none", "filterwise", "filterwise-bottleneck", "full", "bottleneck"]
)
def test_the_server_notes_how_much_of_the_branches_relu_lets_live(projection):
    options = replace(OPTIONS, layers=("0", "2"), projection=projection)
    nodes, net = world(options), build(options).double()
    params = FedCG().start_server(nodes).params
    params[:, : params.shape[1] // 2] -= 0.05  # so that layers differ, and rows of W do
    state = replace(FedCG().start_server(nodes), params=params)
    net.load_state_dict(nodes.layout.unflatten(params[0]), strict=True)
    made = [layer.parameters_of_domains(net.adjacency) for layer in modules_of(net.base)]
    expected = min(float((rows > 0).double().mean()) for rows in made)
    assert 0 < expected < 1
    assert FedCG().notes(state, nodes)["live"][0].tolist() == [pytest.approx(expected)]


def test_newcomers_get_a_model_that_weighs_the_domains_of_their_own_samples():
    nodes = world()
    simulation = FederatedSimulation(ALGORITHM, [nodes], DirectExchange(nodes.n))
    simulation.start()
    simulation.round(0)
    ((same, models),) = simulation.adopted(nodes, nodes[torch.tensor([1, 4])])
    assert len(same) == 2 and torch.equal(models, simulation.state.params.expand(2, -1))
    torch.manual_seed(1)
    net, x = build().double().eval(), torch.randn(6, 10).double()
    net.load_state_dict(nodes.layout.unflatten(models[1]), strict=True)
    weights = (net.student(x) - net.middle).softmax(1)
    assert net.middle.any() and torch.equal(net(x), net._through(x, weights))
    assert (weights.max(1).values < 1).all() and not torch.equal(weights[0], weights[1])


def test_options_that_make_no_sense_are_refused():
    for options, message in [
        ({"every": 0}, "every must be at least 1"),
        ({"own": 1.5}, r"own must be in 0\.\.1"),
    ]:
        with pytest.raises(InputError, match=message):
            FedCG(**options)
