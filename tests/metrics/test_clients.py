import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.metrics import clients

accuracies = st.lists(st.floats(0.5, 100), min_size=1, max_size=40)


def test_the_worst_tenth_is_the_mean_of_the_worst_served_nodes() -> None:
    values = [90.0] * 17 + [10.0, 30.0, 50.0]
    assert clients.worst_share(values) == 20
    assert clients.worst_share(values, 0.15) == 30
    assert clients.worst_share([70.0, 80.0]) == 70  # at least one node
    assert clients.worst_share(np.arange(11.0)) == 0.5  # never fewer than the share


def test_variance_is_that_of_the_population() -> None:
    assert clients.variance([80.0, 90.0]) == 25
    assert clients.variance([80.0]) == 0


def test_jains_index_is_one_for_equals_and_one_nth_for_one_winner() -> None:
    assert clients.jain_index([40.0, 40.0, 40.0]) == pytest.approx(1)
    assert clients.jain_index([100.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)


@given(accuracies)
def test_jains_index_lies_between_one_nth_and_one(values: list[float]) -> None:
    index = clients.jain_index(values)
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert clients.jain_index([3 * v for v in values]) == pytest.approx(index)


@given(accuracies)
def test_the_worst_tenth_is_no_better_than_the_mean(values: list[float]) -> None:
    assert min(values) - 1e-9 <= clients.worst_share(values) <= np.mean(values) + 1e-9


def test_nodes_without_samples_are_left_out() -> None:
    values = [np.nan, 50.0, 100.0]
    assert clients.worst_share(values) == 50
    assert clients.variance(values) == 625
    assert clients.jain_index(values) == pytest.approx(0.9)
    for measure in (clients.worst_share, clients.variance, clients.jain_index):
        assert np.isnan(measure([np.nan]))
        assert np.isnan(measure([]))
    assert np.isnan(clients.jain_index([0.0, 0.0]))
