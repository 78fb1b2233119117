import math

import pytest

from coterie.metrics import statistics


def test_the_spread_over_seeds_is_the_population_standard_deviation() -> None:
    assert statistics.mean([1, 3]) == 2
    assert statistics.std([1, 3]) == 1


def test_seeds_without_a_value_are_left_out() -> None:
    assert statistics.mean([1, None, math.nan, 3]) == 2
    assert statistics.std([5, None]) == 0


def test_no_values_have_no_mean() -> None:
    assert statistics.mean([None]) is None
    assert statistics.std([]) is None
    assert statistics.confidence_interval([1.0]) is None


def test_the_confidence_interval_is_students() -> None:
    # mean 2, s = 1 (ddof 1), t(0.975, 2) = 4.3027
    low, high = statistics.confidence_interval([1, 2, 3]) or (0, 0)
    assert (low, high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert statistics.confidence_interval([2, 2, 2]) == (2, 2)
