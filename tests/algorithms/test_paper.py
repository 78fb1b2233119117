"""Every algorithm against a literal, per-node transcription of its paper's box."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import DPSGD, DePRL, EpidemicLearning, Facade, Local
from coterie.core import algorithms
from coterie.errors import InputError
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from tests.algorithms.reference import deprl, dpsgd, epidemic, facade, local
from tests.algorithms.world import N, make_nodes

ROUNDS, SEED = 4, 1
NODES = make_nodes((SEED,))


def node(i):
    return NODES[torch.tensor([i])]


def train(i, params, t):
    return node(i).train(params[None], t)[0]


def edges_of(algorithm):
    return lambda t: algorithm.graph_spec().edges(N, SEED, t).T.tolist()


def played(algorithm, finish=False):
    """The state after all rounds, by the simulation."""
    simulation = Simulation(algorithm, [NODES], DirectExchange(N))
    simulation.start()
    for t in range(ROUNDS):
        simulation.round(t)
    if finish:
        assert simulation.finish(ROUNDS)
    return simulation.states[0]


def same(rows, expected):
    assert_close(rows, torch.stack(expected), rtol=0, atol=1e-9)


def test_local_training_is_training_alone():
    same(played(Local()).params, local.run(NODES.initial_params(), ROUNDS, train))


GRAPHS = ["ring", "star", "fixed-regular", {"name": "erdos-renyi", "probability": 0.5}]


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_dpsgd_averages_with_metropolis_weights(graph):
    algorithm = DPSGD(graph=graph)
    expected = dpsgd.run(NODES.initial_params(), ROUNDS, train, edges_of(algorithm))
    same(played(algorithm).params, expected)


@pytest.mark.parametrize("variant", ["oracle", "local"])
@pytest.mark.parametrize("degree", [2, 3])
def test_epidemic_learning_averages_with_whoever_sent(variant, degree):
    algorithm = EpidemicLearning(degree=degree, variant=variant)
    expected = epidemic.run(NODES.initial_params(), ROUNDS, train, edges_of(algorithm))
    same(played(algorithm).params, expected)


@pytest.mark.parametrize("algorithm", [EpidemicLearning(2, all_reduce=True), DPSGD("ring", True)])
def test_an_all_reduce_leaves_everybody_the_mean(algorithm):
    before = list(played(algorithm).params)
    same(played(algorithm, finish=True).params, epidemic.all_reduce(before))


DEPRLS = [
    DePRL("ring"),
    DePRL("ring", head_steps=3, core_steps=2, lr_decay=0.5),
    DePRL("ring", head_epochs=2, core_epochs=1),
    DePRL({"name": "regular", "degree": 2}, core_steps=0),
    DePRL({"name": "erdos-renyi", "probability": 0.5}, head_epochs=0.5),
]


def steps_of(algorithm: DePRL):
    """Local steps on one part, at the learning rate of round t."""

    def steps(i, params, t, part):
        nodes, layout = node(i), NODES.layout
        nodes = dataclasses.replace(nodes, lr=nodes.lr * algorithm.lr_decay**t)
        epochs = getattr(algorithm, f"{part}_epochs") or None
        count = None if epochs else getattr(algorithm, f"{part}_steps")
        columns = layout.head if part == "head" else layout.core
        return nodes.train(params[None], t, part, columns, count, epochs)[0]

    return steps


@pytest.mark.parametrize("algorithm", DEPRLS, ids=str)
def test_deprl_trains_heads_then_cores_and_averages_cores(algorithm):
    start, layout = NODES.initial_params(), NODES.layout
    cores, heads = start[:, layout.core], start[:, layout.head]
    cores, heads = deprl.run(cores, heads, ROUNDS, steps_of(algorithm), edges_of(algorithm))
    state = played(algorithm)
    same(state.core, cores)
    same(state.head, heads)
    same(algorithm.personal(state, NODES), [torch.cat(m) for m in zip(cores, heads, strict=True)])


def test_the_final_all_reduce_of_deprl_leaves_heads_alone():
    algorithm = DePRL("ring", all_reduce=True)
    before, after = played(algorithm), played(algorithm, finish=True)
    same(after.core, epidemic.all_reduce(list(before.core)))
    assert torch.equal(after.head, before.head)


def test_deprl_sends_cores_alone():
    algorithm, nodes = DePRL("ring"), NODES
    message = next(algorithm.round(0, algorithm.start(nodes), nodes))
    assert {name: rows.shape[1] for name, rows in message.rows.items()} == {
        "core": nodes.layout.split
    }


@pytest.mark.parametrize("option", ["head_steps", "core_steps", "head_epochs", "lr_decay"])
def test_deprl_refuses_what_cannot_be(option):
    with pytest.raises(InputError, match=f"{option} must be at least 0, got -1"):
        DePRL(**{option: -1})


def brief(algorithm: Facade) -> str:
    core = "facade" if algorithm.shared_core else "idca"
    kind = f"{core}-k{algorithm.heads}-w{algorithm.warmup}-{algorithm.scoring}"
    return f"{kind}-e{algorithm.explore}{'-fading' * algorithm.fading}-a{algorithm.leak:g}"


def box_of(algorithm: Facade) -> facade.Facade:
    return facade.Facade(
        k=algorithm.heads,
        warmup=algorithm.warmup,
        train=train,
        loss=lambda i, params, t, stream: (
            node(i).loss(params[None], t, stream=stream, samples=looked_at(algorithm, t)).item()
        ),
        edges=edges_of(algorithm),
        words=lambda i, t: node(i).draw("head ties", t, algorithm.heads)[0].tolist(),
        scoring=algorithm.scoring,
        explore=algorithm.explore,
        fading=algorithm.fading,
        leak=algorithm.leak,
        dice=lambda i, t: node(i).draw("explore", t, 2)[0].tolist(),
    )


def looked_at(algorithm: Facade, t: int) -> int:
    """10 times as many samples in rounds 1, R + 1, 2R + 1, ...: the code evaluates before them."""
    rounds = range(1, ROUNDS, algorithm.rescore_every) if algorithm.rescore_every else ()
    return 10 * algorithm.samples if t in rounds else algorithm.samples


def start_of(algorithm: Facade):
    """Cores and heads before the first round: with a warm-up all heads of a node are one."""
    streams = [f"init {0 if algorithm.warmup else j}" for j in range(algorithm.heads)]
    models = [NODES.initial_params(stream) for stream in streams]
    at = NODES.layout.split if algorithm.shared_core else 0
    return list(models[0][:, :at]), [[model[i, at:] for model in models] for i in range(N)]


def by_paper(algorithm: Facade):
    return facade.run(box_of(algorithm), *start_of(algorithm), ROUNDS)


FACADES = [
    Facade(heads=k, degree=2, warmup=warmup, scoring=scoring, samples=5, explore=explore)
    for k, warmup, scoring, explore in [
        (2, 2, "same", 0),
        (2, 0, "same", 0),
        (2, 1, "independent", 0),
        (3, 0, "independent", 0),
        (3, 1, "same", 0),
        (3, 1, "same", 2),
        (2, 0, "same", 1),
        (2, 4, "same", 0),
        (1, 1, "same", 0),
    ]
]
FACADES += [
    Facade(heads=3, degree=2, warmup=1, samples=5, explore=2, fading=True),
    Facade(heads=3, degree=2, warmup=1, samples=5, leak=5.0),
    Facade(heads=2, degree=2, warmup=0, samples=5, leak=1.0, explore=1),
    Facade(heads=1, degree=2, warmup=0, samples=5, leak=5.0),
    Facade(heads=3, degree=2, warmup=0, samples=1, rescore_every=1),
    Facade(heads=2, degree=2, warmup=0, samples=1, rescore_every=2, scoring="independent"),
]
IDCA = [
    algorithms.build({"name": "idca", "degree": 3, "samples": 5, "heads": 3, **options})
    for options in ({"warmup": 0}, {"warmup": 1}, {"warmup": 0, "leak": 5.0})
]


@pytest.mark.parametrize("algorithm", FACADES + IDCA, ids=brief)
def test_facade_follows_algorithm_1(algorithm):
    state = played(algorithm)
    cores, heads, choice = by_paper(algorithm)
    assert state.choice.tolist() == choice
    same(state.core, cores)
    same(state.heads, [torch.stack(mine) for mine in heads])


@pytest.mark.parametrize("algorithm", [FACADES[0], FACADES[3]], ids=brief)
def test_a_node_deploys_the_head_with_the_lowest_loss_on_all_its_samples(algorithm):
    state = played(algorithm)
    cores, heads, _ = by_paper(algorithm)
    best = best_heads(cores, heads, algorithm.heads)
    expected = [torch.cat([cores[i], heads[i][best[i]]]) for i in range(N)]
    same(algorithm.personal(state, NODES), expected)


def best_heads(cores, heads, k):
    def loss(i, j):
        return node(i).loss(torch.cat([cores[i], heads[i][j]])[None], 0).item()

    words = NODES.draw("best head", 0, k).tolist()
    return [facade.lowest([loss(i, j) for j in range(k)], words[i]) for i in range(N)]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("k", [2, 3])
def test_the_final_all_reduce_averages_heads_by_index(shared, k):
    algorithm = Facade(k, degree=2, warmup=0, samples=5, shared_core=shared, all_reduce=True)
    state = played(algorithm, finish=True)
    cores, heads, _ = by_paper(algorithm)
    cores, heads = facade.all_reduce(k, cores, heads, best_heads(cores, heads, k))
    same(state.core, cores)
    same(state.heads, [torch.stack(mine) for mine in heads])


def test_exploration_ends_at_once_or_fades():
    sharp, soft = Facade(warmup=2, explore=3), Facade(warmup=2, explore=3, fading=True)
    assert [sharp.exploration(t) for t in range(7)] == [0, 0, 1, 1, 1, 0, 0]
    assert [round(soft.exploration(t), 3) for t in (1, 2, 3, 5)] == [0, 1, 0.368, 0.05]
    assert Facade(fading=True).exploration(50) == 0


def test_heads_are_looked_at_thoroughly_after_every_so_many_rounds():
    looked = [[Facade(rescore_every=every).seen(t) for t in range(6)] for every in (0, 1, 2, 3)]
    assert looked[0] == [80] * 6 and looked[1] == [80] + [800] * 5
    assert looked[2] == [80, 800, 80, 800, 80, 800] and looked[3] == [80, 800, 80, 80, 800, 80]


def test_leaking_heads_that_do_equally_well_become_their_mean():
    heads = torch.arange(12.0).view(1, 3, 4)
    lent = Facade(heads=3, leak=5.0).lend(10, heads, torch.tensor([1]), torch.ones(1, 3))
    assert torch.allclose(lent, heads.mean(1))


def test_the_trial_population_really_uses_several_heads():
    _, _, choice = by_paper(FACADES[0])
    assert len(set(choice)) == 2
