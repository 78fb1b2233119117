"""A small family by hand: what forked, merged and died."""

from __future__ import annotations

from coterie.metrics.family import Model, camps, extinction, timetable, turns

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


def test_a_model_goes_on_with_the_camp_of_most_of_its_followers():
    number = camps(FAMILY, 4)
    assert number["a"] == number["d"] == number["g"]
    assert number["c"] == number["f"] == number["h"]  # whatever their parents are
    assert len(set(number.values())) == 4  # a, b, c, and the fork e


def test_followers_who_stay_together_stay_a_camp_although_they_follow_another_line_every_round():
    line = [Model("a0", "root", 1, (0,), (0, 1, 2), 1.0), Model("b0", "root", 1, (3,), (3,), 1.0)]
    for t in range(1, 5):  # 0 to 2 go on with what 3 made, and 3 with what they made
        line.append(Model(f"a{t}", f"b{t - 1}", t + 1, (3,), (0, 1, 2), 1.0))
        line.append(Model(f"b{t}", f"a{t - 1}", t + 1, (0,), (3,), 1.0))
    assert timetable(line, 4)[0].tolist() == [[0] * 5] * 3 + [[1] * 5]


def test_where_a_camp_parts_the_larger_part_keeps_its_number():
    parted = [
        Model("a", "root", 1, (0,), (0, 1, 2), 1.0),
        Model("b", "a", 2, (0,), (0,), 1.0),
        Model("c", "a", 2, (1, 2), (1, 2), 1.0),
    ]
    assert timetable(parted, 3)[0].tolist() == [[0, 1], [0, 0], [0, 0]]


def test_a_timetable_has_the_camp_of_every_node_in_every_round():
    table, rounds = timetable(FAMILY, 5)
    assert rounds == [1, 2, 3]
    assert table.tolist() == [[0, 0, 0], [0, 3, 0], [1, 0, 0], [2, 2, 2], [-1, -1, -1]]


def test_a_family_without_models_is_no_family():
    assert extinction([]) == {} and turns([], 3) == [] and camps([], 3) == {}
