"""Rounds to a target accuracy."""

from coterie.metrics.target import rounds_to_target


def test_the_curve_is_a_line_between_two_evaluations():
    assert rounds_to_target(99.0, [(10, 97.0), (20, 99.0)]) == 20
    assert rounds_to_target(98.0, [(20, 99.0), (10, 97.0), (30, 50.0)]) == 15


def test_the_curve_never_falls():
    seen = [(10, 98.0), (20, 90.0), (30, None), (40, 100.0)]
    assert rounds_to_target(99.0, seen) == 30, "halfway from round 20, where 98 was the best so far"


def test_what_the_first_evaluation_reaches_was_reached_then():
    assert rounds_to_target(50.0, [(10, 60.0), (20, 70.0)]) == 10


def test_without_a_target_or_below_it_there_are_no_rounds():
    assert rounds_to_target(0.0, [(10, 50.0)]) is None
    assert rounds_to_target(99.5, [(10, 98.0), (20, 99.4)]) is None
    assert rounds_to_target(99.5, []) is None
