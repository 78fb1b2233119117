from __future__ import annotations

from coterie.metrics.target import rounds_to_target


def test_the_first_evaluation_at_the_target_counts():
    seen = [(30, 99.2), (10, 98.9), (20, 99.0), (25, None)]
    assert rounds_to_target(99.0, seen) == 20
    assert rounds_to_target(99.5, seen) is None


def test_without_a_target_nothing_is_reached():
    assert rounds_to_target(0.0, [(10, 50.0)]) is None
