"""MultiConfederated Learning against its paper's boxes, and what may go wrong on a network."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import MCFL, FedAvgP2P
from coterie.algorithms.confederation import (
    FAULTS,
    OTHER,
    as_ids,
    as_rows,
    checked_updates,
    choices,
    families,
    masks,
    rebuilt,
)
from coterie.algorithms.mcfl_rules import goodness, in_line, rank
from coterie.core.lineage import ROOT, model_id, update_id
from coterie.errors import InputError
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from tests.algorithms.reference import fedavg_p2p, mcfl
from tests.algorithms.test_paper import NODES, ROUNDS, node, played, same, train
from tests.algorithms.world import N


def size(i):
    return NODES.samples[i].item()


def accuracy(i, weights):
    return node(i).accuracy(weights[None]).item()


def by_loss(i, weights):
    return 1 / (node(i).validate(weights[None]).loss.item() + 1e-12)


def box(algorithm):
    return SimpleNamespace(
        n=N,
        train=train,
        metric=by_loss if algorithm.metric == "loss" else accuracy,
        size=size,
        columns=NODES.layout.trained(),
        tolerance=lambda i: algorithm.tolerances[i % len(algorithm.tolerances)],
        popularity=algorithm.popularity,
        most=algorithm.most,
    )


def alive(state):
    """The models of a state by id."""
    count = int(state.count[0])
    return dict(zip(as_ids(state.ids[0, :count]), state.models[0, :count], strict=True))


CASES = [
    MCFL(),
    MCFL(tolerance=0.5),
    MCFL(tolerance=[0.0, 1.0, 3.0]),
    MCFL(tolerance=1, popularity="size"),
    MCFL(tolerance=1, popularity="votes", metric="loss"),
    MCFL(tolerance=3, most=1),
]


@pytest.mark.parametrize("algorithm", CASES, ids=str)
def test_every_learner_selects_trains_and_merges_as_the_paper_says(algorithm):
    expected, follows = mcfl.run(box(algorithm), NODES.initial_params(), ROUNDS)
    state = played(algorithm)
    found = alive(state)
    assert list(found) == sorted(expected)
    for name, model in expected.items():
        assert_close(found[name], model.weights, rtol=0, atol=1e-9)
    popularity = state.popularity[0, : len(found)].tolist()
    assert popularity == [expected[name].popularity for name in found]
    assert state.choice.tolist() == [follows.index(name) for name in follows]


def test_fedavg_among_peers_is_the_mean_of_all():
    expected = fedavg_p2p.run(NODES.initial_params(), ROUNDS, train, size)
    same(played(FedAvgP2P()).params, expected)


def after(algorithm, rounds):
    """All states on the way, by the simulation."""
    simulation = Simulation(algorithm, [NODES], DirectExchange(N))
    simulation.start()
    states = []
    for t in range(rounds):
        simulation.round(t)
        states.append(simulation.states[0])
    return states


def test_the_first_round_ends_with_a_model_of_each_learner_and_merges_nothing():
    (state,) = after(MCFL(), 1)
    assert state.count.tolist() == [N]
    assert state.merged[0].sum(1).tolist() == [1] * N
    assert state.popularity[0].tolist() == [1.0] * N
    names = [model_id(ROOT, [update_id(0, i, ROOT)]) for i in range(N)]
    assert as_ids(state.ids[0]) == sorted(names)


def test_learners_train_the_root_of_the_number_of_models_or_fewer_where_it_is_capped():
    states = after(MCFL(tolerance=0.0), 2)
    assert states[1].trained.tolist() == [[2] * N]  # floor(sqrt(6))
    assert after(MCFL(tolerance=0.0, most=1), 2)[1].trained.tolist() == [[1] * N]


def test_a_choice_for_each_trained_model_gives_more_models_and_one_for_the_best_does_not():
    best, each = after(MCFL(tolerance=0.0), 3)[-1], after(MCFL(0.0, publish="each", most=2), 3)[-1]
    assert int(best.count) <= N < int(each.count) <= 2 * N


def test_a_large_tolerance_lets_a_model_merge_all_who_trained_it():
    state = after(MCFL(tolerance=100), 2)[-1]
    for place in range(int(state.count)):
        same_parent = (state.parents[0] == state.parents[0, place]).all(1)[: int(state.count)]
        assert int(same_parent.sum()) == 1  # nobody forked


def test_popularity_helps_a_model_whatever_way_its_metric_points():
    pop = torch.tensor([[1.0, 4.0]]).double()
    alike = torch.tensor([[0.5, 0.5]]).double()
    assert rank(alike, pop).argmax() == 1
    assert rank(goodness(alike), pop).argmax() == 1
    assert rank(goodness(torch.tensor([[0.1, 0.9]])), pop).argmax() == 0


def test_the_threshold_itself_is_within_so_that_two_learners_can_merge():
    row = torch.zeros(1, dtype=torch.int64)
    assert in_line(torch.tensor([0.3]).double(), row, torch.tensor([0.0])).all()
    two = torch.tensor([0.1, 0.3]).double()
    assert in_line(two, torch.tensor([0, 0]), torch.tensor([1.0])).tolist() == [True, True]
    assert in_line(two, torch.tensor([0, 0]), torch.tensor([0.5])).tolist() == [True, False]


def test_a_diverged_update_is_accepted_by_nobody_and_does_not_spoil_the_threshold():
    values = torch.tensor([0.1, 0.2, torch.nan, torch.inf]).double()
    assert in_line(values, torch.zeros(4).long(), torch.tensor([3.0])).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(("rule", "spoil"), [("norm", 40.0), ("validation", -3.0)])
def test_rules_against_bad_updates_keep_out_one_that_is_out_of_line(rule, spoil, monkeypatch):
    honest = type(NODES).train

    def spoiled(self, params, t, *more, **options):
        made = honest(self, params, t, *more, **options)
        bad = (self.ids == 4)[:, None] & (t > 0)
        return torch.where(bad, params + spoil * (made - params), made)

    monkeypatch.setattr(type(NODES), "train", spoiled)
    settings = {"tolerance": 1.0, "metric": "loss", "popularity": "size"}
    assert victims(MCFL(accept=[], **settings)) and not victims(MCFL(accept=[rule], **settings))


def victims(algorithm):
    """Who merged the update of learner 4 although it could see that two others are unlike it."""
    state = after(algorithm, 2)[-1]
    unlike = (state.merged[0].sum(1) > 2) & state.merged[0, :, 4]
    return [i for i in range(N) if i != 4 and state.followers[0, unlike, i].any()]


# what others publish is checked

T = 7
PARENT = bytes([9]) * 32


def some_updates(faults, parents=(PARENT,) * 3, samples=(10, 20, 30), key=(0, 1, 2)):
    params = torch.tensor(key).double()[:, None].expand(-1, 5) / 3
    rows = {"params": params, "parent": as_rows(list(parents)), "samples": torch.tensor(samples)}
    return checked_updates(T, 4, rows, torch.tensor(key), faults)


def no_faults():
    return torch.zeros(4, dtype=torch.uint8)


def published(updates, rows, key, faults, allowed=1):
    (family,) = families(updates, rows, torch.tensor(key), allowed, faults)
    return family


def test_everybody_rebuilds_the_same_bytes_whoever_else_sent_something():
    faults = no_faults()
    few = some_updates(faults)
    many = some_updates(faults, (PARENT, ROOT, PARENT, PARENT), (10, 5, 20, 30), (0, 0, 1, 2))
    merged = choices(few, [0], [0, 0], [1, 2])
    (one,) = published(few, merged, [0], faults).values()
    (other,) = published(many, merged, [0], faults).values()
    assert_close(rebuilt(few, [one])[0], torch.full((5,), 80 / 60 / 3).double())
    assert torch.equal(rebuilt(few, [one]), rebuilt(many, [other, one])[:1])
    assert not faults.any()


def test_equal_choices_are_one_model_that_both_follow():
    updates, faults = some_updates(no_faults()), no_faults()
    rows = choices(updates, [0, 1], [0, 1], [1, 0])
    family = published(updates, rows, [0, 1], faults)
    assert [child.followers for child in family.values()] == [(0, 1)]


@pytest.mark.parametrize("samples", [(10, 20, 30), (10, 20, 31)])
def test_two_contents_of_one_update_are_merged_by_nobody_who_holds_the_other(samples):
    faults, mine = no_faults(), some_updates(no_faults())
    other = some_updates(no_faults(), samples=samples)
    if samples == (10, 20, 30):
        other = dataclasses.replace(other, params=mine.params + torch.tensor([[0], [0], [1e-9]]))
    rows = choices(mine, [0, 1], [0], [2])  # learner 0 merges 0 and 2, learner 1 only its own
    found = published(mine, rows, [0, 1], faults).values()
    assert sorted(child.followers for child in found) == [(0,), (1,)]
    assert not faults.any()
    assert [c.followers for c in published(other, rows, [0, 1], faults).values()] == [(1,)]
    assert faults.tolist() == [OTHER, 0, 0, 0]


def liar(change):
    """What is left, and what was noted, when learner 1 publishes something else than it should."""
    updates, faults = some_updates(no_faults()), no_faults()
    rows = change(choices(updates, [0, 1], [1], [2]))
    key = [0, 1, 1][: len(rows["child"])]
    return published(updates, rows, key, faults), faults.tolist()


LIES = {
    "published a false id": lambda r: r | {"child": r["child"] + torch.tensor([[0], [1]]).byte()},
    "merged other bytes than came here: it, or who made them, tells peers different things": (
        lambda r: r | {"content": r["content"] + torch.tensor([[0], [1]]).byte()}
    ),
    "chose updates that do not exist": lambda r: r | {"merged": masks([[0], [1, 3]], 4)},
    "published a choice without updates": lambda r: r | {"merged": masks([[0], []], 4)},
    "published more choices than it may": lambda r: {k: v[[0, 1, 1]] for k, v in r.items()},
}


@pytest.mark.parametrize("fault", LIES)
def test_a_choice_that_does_not_verify_is_left_out_and_the_others_count(fault):
    family, faults = liar(LIES[fault])
    assert [child.followers for child in family.values()] == [(0,)]
    assert [FAULTS[number] for number in faults] == ["", fault, "", ""]


def test_an_update_that_came_twice_or_claims_impossible_samples_is_left_out():
    faults = no_faults()
    updates = some_updates(faults, (PARENT,) * 4, (1, 1, 1, -5), (0, 1, 1, 2))
    assert updates.key == [0]
    assert [FAULTS[number] for number in faults] == [
        "",
        "sent two updates of one model",
        "claims an impossible number of samples",
        "",
    ]


def test_an_algorithm_says_whose_rows_it_left_out():
    state = dataclasses.replace(MCFL().start(NODES), faults=torch.tensor([[0, 0, 6, 0, 0, 0]]))
    assert MCFL().concerns(state) == ["node 2 published a false id"]


def of_nodes(state, rows):
    """The state of a block of these nodes alone."""
    return dataclasses.replace(state, choice=state.choice[rows], scores=state.scores[rows])


def test_a_learner_that_missed_rounds_knows_all_models_again_after_the_next():
    """Children are made of updates alone, so nobody needs their parents to rebuild them."""
    known, late = after(MCFL(), 3)[1], MCFL().start(NODES)
    simulation = Simulation(MCFL(), [NODES[torch.arange(5)], NODES[torch.tensor([5])]], None)
    simulation.exchange = DirectExchange(N)
    simulation.states = [of_nodes(known, slice(0, 5)), of_nodes(late, slice(5, N))]
    simulation.round(2)
    mine, theirs = simulation.states
    assert torch.equal(mine.ids, theirs.ids) and torch.equal(mine.models, theirs.models)
    assert not mine.faults.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": -1.0}, "tolerance must be at least 0"),
        ({"tolerance": []}, "tolerance must be at least 0"),
        ({"most": -1}, "most must be at least 0"),
        ({"accept": ["divergense"]}, "did you mean 'divergence'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        MCFL(**options)
