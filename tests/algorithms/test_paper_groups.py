"""Algorithms that choose groups of peers, or the best of some, against their papers."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import PENS, PPDL
from coterie.algorithms import bandit as bandits
from coterie.algorithms.groups import groups_of
from coterie.core import algorithms, uniform
from coterie.core.draws import WORD, shuffle
from coterie.errors import InputError
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from tests.algorithms.reference import pens, ppdl
from tests.algorithms.test_paper import NODES, node, same
from tests.algorithms.test_paper_peers import size_if, train_in
from tests.algorithms.world import N, make_nodes

CPU = torch.device("cpu")
ROUNDS = 6


def played(algorithm, nodes=NODES, rounds=ROUNDS):
    simulation = Simulation(algorithm, [nodes], DirectExchange(nodes.n))
    simulation.start()
    for t in range(rounds):
        simulation.round(t)
    return simulation.states[0]


def compare(mine, row, expected):
    """One node's bandit is that of the reference."""
    tried = len(expected.order)
    assert mine.arm[row, :tried].tolist() == expected.order
    assert (mine.arm[row, tried:] == -1).all()
    for name in ("pulls", "rewards", "losses"):
        found = getattr(mine, name)[row, :tried].double()
        wanted = [getattr(expected, name)[arm] for arm in expected.order]
        assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "q"), [([2], 0.1), ([3], 0.1), ([3], 0.02), ([1, 2, 3], 0.1), ([2, 3], 0.3)], ids=str
)
def test_the_bandit_is_that_with_the_full_matrix(sizes, q):
    """More rounds than arms, so that significance and second trials count too."""
    groups = groups_of(5, sizes[0], sizes[-1], CPU)
    rng = random.Random(f"{sizes} {q}")
    mine, expected = bandits.no_trials(1, sizes[-1], CPU), ppdl.Bandit(range(5), sizes)
    left = set()
    for t in range(60):
        mine = bandits.roomy(mine, t)
        word = rng.randrange(WORD)
        choice = bandits.choose(mine, groups, torch.tensor([word]))
        arm, chance = expected.draw(float(uniform(torch.tensor(word))))
        assert choice.arm.tolist() == [arm]
        assert choice.chance.item() == pytest.approx(chance, rel=1e-9)
        assert choice.competitive.tolist() == [len(expected.competitive)]
        allowed = bandits.competitive(mine, groups)[0]
        assert torch.nonzero(allowed).flatten().tolist() == expected.competitive
        left.add(len(expected.competitive))
        reward = min(1.0, max(0.0, 0.3 * len(expected.arms[arm] & {0, 1}) + rng.gauss(0.1, 0.05)))
        expected.learn(arm, chance, reward, q)
        reward = torch.tensor([reward], dtype=torch.float64)
        mine = bandits.learn(mine, choice, reward, q, torch.tensor([True]))
        compare(mine, 0, expected)
    assert len(left) > 2  # the set did shrink


def test_groups_are_numbered_in_order_and_know_what_they_contain():
    groups = groups_of(6, 2, 3, CPU)
    pairs, triples = (list(itertools.combinations(range(6), size)) for size in (2, 3))
    assert groups.members.tolist() == [[*pair, -1] for pair in pairs] + [list(t) for t in triples]
    assert groups.number(torch.tensor(triples)).tolist() == list(range(len(triples)))
    for triple, below in zip(triples, groups.below[1].tolist(), strict=True):
        assert {pairs[number] for number in below} == set(itertools.combinations(triple, 2))


def test_a_group_never_contains_the_node_that_asks():
    groups = groups_of(5, 3, 3, CPU)
    ids = torch.arange(6)
    for arm in range(len(groups)):
        asked = groups.of(torch.full((6,), arm), ids)
        assert not (asked == ids[:, None]).any()
        assert all(len(set(row)) == 3 and set(row) <= set(range(6)) for row in asked.tolist())


def hundred_nodes(rounds, seed=3):
    """Bandits of three nodes among 100 after some pulls of random arms with random rewards."""
    groups = groups_of(99, 3, 3, CPU)
    random_ = torch.Generator().manual_seed(seed)
    state = bandits.no_trials(3, 3, CPU)
    for t in range(rounds):
        state = bandits.roomy(state, t)
        words = torch.randint(WORD, (3,), generator=random_)
        choice = bandits.choose(state, groups, words)
        reward = torch.rand(3, generator=random_, dtype=torch.float64)
        state = bandits.learn(state, choice, reward, 0.1, torch.ones(3, dtype=torch.bool))
    return groups, state


@pytest.mark.parametrize("rounds", [0, 1, 8])
def test_the_weights_of_156_849_arms_add_up_to_one(rounds):
    groups, state = hundred_nodes(rounds)
    each, untried = bandits.weights(bandits.roomy(state, rounds), len(groups))
    assert len(groups) == 156_849
    total = each.sum(1) + untried * (len(groups) - (state.arm >= 0).sum(1))
    assert (total - 1).abs().max() < 1e-9


def test_arms_are_drawn_by_their_weights():
    groups = groups_of(4, 2, 2, CPU)
    state = bandits.roomy(bandits.no_trials(1, 2, CPU), 3)
    for arm, reward in ((2, 0.9), (0, 0.9), (2, 0.85)):
        choice = bandits.Choice(torch.tensor([arm]), torch.tensor([0.9]), torch.tensor([6]))
        value = torch.tensor([reward], dtype=torch.float64)
        state = bandits.learn(state, choice, value, 1.0, torch.tensor([True]))
    words = torch.arange(0, WORD, WORD // 5000)
    many = bandits._rows(state, torch.zeros(len(words), dtype=torch.long))
    drawn = bandits.choose(many, groups, words)
    share = torch.bincount(drawn.arm, minlength=6) / len(words)
    for arm, chance in zip(drawn.arm.tolist(), drawn.chance.tolist(), strict=True):
        assert abs(share[arm] - chance) < 1e-3


def test_a_group_that_did_not_arrive_teaches_nothing():
    state = bandits.roomy(bandits.no_trials(2, 3, CPU), 0)
    choice = bandits.Choice(torch.tensor([4, 4]), torch.tensor([0.5, 0.5]), torch.tensor([10, 10]))
    reward = torch.tensor([0.5, 0.5], dtype=torch.float64)
    after = bandits.learn(state, choice, reward, 0.1, torch.tensor([True, False]))
    assert after.tried.sum(1).tolist() == [1, 0] and after.pulls.sum(1).tolist() == [1, 0]


def box_of(algorithm: PPDL) -> ppdl.PPDL:
    return ppdl.PPDL(
        sizes=list(range(algorithm.smallest or algorithm.group, algorithm.group + 1)),
        q=algorithm.bound,
        train=train_in,
        accuracy=lambda i, params: node(i).accuracy(params[None]).item(),
        loss=lambda i, params: node(i).validate(params[None]).loss.item(),
        uniform=lambda i, t: uniform(node(i).draw("group", t, 1)).item(),
        size=size_if(algorithm.by_samples),
    )


PPDLS = [
    PPDL(),
    PPDL(group=2, q=0.02),
    PPDL(by_samples=False),
    PPDL(smallest=1),
    algorithms.build({"name": "ppdl-var"}),
]


@pytest.mark.parametrize("algorithm", PPDLS, ids=str)
def test_ppdl_follows_its_authors(algorithm):
    state = played(algorithm)
    params, best, expected = ppdl.run(box_of(algorithm), NODES.initial_params(), ROUNDS)
    same(state.params, params)
    same(state.best, best)
    for row in range(N):
        compare(state.bandit(0), row, expected[row])
    assert torch.equal(algorithm.personal(state, NODES), state.best)


def test_q_decays_as_the_authors_set_it():
    var = algorithms.build({"name": "ppdl-var"})
    assert [round(var.bound(t), 4) for t in (0, 1, 2, 1000)] == [0.5, 0.5, 0.457, 0.07]
    assert [PPDL().bound(t) for t in range(5)] == pytest.approx([0.1] * 5)


def test_the_best_model_is_kept_by_validation_loss():
    state = played(PPDL(), rounds=8)
    assert_close(state.best_loss, NODES.validate(state.best).loss, rtol=0, atol=1e-9)
    assert (state.best_loss <= NODES.validate(state.params).loss + 1e-9).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"group": 6}, "6 nodes has 5 peers"), ({"smallest": 4}, "groups of 4 to 3")],
)
def test_groups_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        PPDL(**options).start(NODES)


def test_too_many_groups_are_refused():
    with pytest.raises(InputError, match="use smaller groups or fewer nodes"):
        groups_of(999, 3, 3, CPU)


def test_a_q_out_of_range_is_refused():
    with pytest.raises(InputError, match="q must be from 0 to 1, got 2"):
        PPDL(q=2)


@pytest.mark.parametrize("algorithm", [PENS(3, 1, 3), PENS(3, 2, 4), PENS(2, 2, 0), PENS(5, 1, 5)])
def test_pens_keeps_the_best_and_then_gossips_with_them(algorithm):
    state = played(algorithm)
    params, kept = pens.run(
        NODES.initial_params(),
        ROUNDS,
        train_in,
        lambda i, model, t: node(i).loss(model[None], t, "scores").item(),
        lambda i, t: shuffle(node(i).draw("peers", t, N))[0].tolist(),
        algorithm.degree,
        algorithm.keep,
        algorithm.warmup,
    )
    same(state.params, params)
    assert state.kept.tolist() == kept


def test_pens_asks_only_peers_that_it_kept_more_often_than_by_chance():
    kept = torch.zeros(N, N, dtype=torch.long)
    kept[:, 0], kept[:, 1], kept[0, 2] = 5, 1, 5
    chosen = PENS(3, 1, 2).choose(2, kept, NODES)
    assert chosen[1:].tolist() == [[0, -1, -1]] * (N - 1)
    nobody = PENS(3, 1, 2).choose(2, torch.zeros_like(kept), NODES)
    assert (nobody >= 0).all()


def test_pens_refuses_to_keep_more_than_it_asks():
    with pytest.raises(InputError, match="keep must be from 0 to the degree, 2; got 3"):
        PENS(2, 3)


def test_a_checkpoint_holds_a_bandit_that_grew(tmp_path):
    from coterie.runtimes import checkpoint

    state = played(PPDL(), rounds=20)
    assert state.arm.shape[1] == 32
    checkpoint.save(tmp_path / "a", [state], torch.zeros(1), {})
    (found,), _ = checkpoint.load(tmp_path / "a", [PPDL().start(make_nodes((1,)))])
    assert all(torch.equal(getattr(found, name), value) for name, value in vars(state).items())
