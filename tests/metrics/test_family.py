"""A small family by hand: what forked, merged and died."""

from __future__ import annotations

from coterie.metrics.family import Model, branches, extinction, timetable, turns

# round 1: a (0, 1), b (2), c (3); round 2: d, e of a, f of b; round 3: g of d for all but 3
FAMILY = [
    Model("a", "root", 1, (0,), (0, 1), 1.0),
    Model("b", "root", 1, (2,), (2,), 1.0),
    Model("c", "root", 1, (3,), (3,), 1.0),
    Model("d", "a", 2, (0, 1), (0, 2), 3.0),
    Model("e", "a", 2, (1,), (1,), 2.0),
    Model("f", "b", 2, (3,), (3,), 2.0),
    Model("g", "d", 3, (0, 1, 2), (0, 1, 2), 6.0),
    Model("h", "f", 3, (3,), (3,), 3.0),
]


def test_a_branch_dies_with_its_last_descendant():
    assert extinction(FAMILY) == dict.fromkeys("abdfgh") | {"c": 2, "e": 3}


def test_forks_mergers_and_extinct_models_are_counted_by_round():
    second, third = turns(FAMILY, 4)[1:]
    assert (second.alive, second.forks, second.mergers, second.extinct) == (3, 1, 1, 1)
    assert (third.alive, third.forks, third.mergers, third.extinct) == (2, 0, 1, 1)


def test_the_child_with_most_followers_goes_on_with_its_parents_branch():
    number = branches(FAMILY)
    assert number["a"] == number["d"] == number["g"]
    assert number["b"] == number["f"] == number["h"]
    assert len(set(number.values())) == 4  # a, b, c, and the fork e


def test_a_timetable_has_the_branch_of_every_node_in_every_round():
    table, rounds = timetable(FAMILY, 5)
    assert rounds == [1, 2, 3]
    assert table.tolist() == [[0, 0, 0], [0, 3, 0], [1, 0, 0], [2, 1, 1], [-1, -1, -1]]


def test_a_family_without_models_is_no_family():
    assert extinction([]) == {} and turns([], 3) == [] and branches([]) == {}
