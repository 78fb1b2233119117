import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coterie.metrics import fairness

# Cluster 0: two nodes, mean counts [[4, 1], [1, 4]]. Cluster 1: one node, [[5, 0], [3, 2]].
CONFUSION = np.array([[[5, 0], [2, 3]], [[3, 2], [0, 5]], [[5, 0], [3, 2]]])
CLUSTER = [0, 0, 1]
COUNTS = arrays(np.int64, (5, 3, 3), elements=st.integers(1, 50))


def test_demographic_parity_compares_how_often_each_class_is_predicted() -> None:
    # predicted shares: cluster 0 (.5, .5), cluster 1 (.8, .2)
    assert fairness.demographic_parity(CONFUSION, CLUSTER) == pytest.approx(0.3)


def test_equalized_odds_adds_true_and_false_positive_rates() -> None:
    # TPR (.8, .8) against (1, .4): .2 and .4. FPR (.2, .2) against (.6, 0): .4 and .2.
    assert fairness.equalized_odds_tpr(CONFUSION, CLUSTER) == pytest.approx(0.3)
    assert fairness.equalized_odds(CONFUSION, CLUSTER) == pytest.approx(0.6)


def test_counts_are_averaged_over_nodes_before_rates() -> None:
    # A large and a small node: the mean of rates would be (1 + 0) / 2, the rate of means 9 / 10.
    confusion = np.array([[[9, 0], [0, 9]], [[0, 1], [1, 0]], [[9, 1], [1, 9]]])
    assert fairness.equalized_odds(confusion, CLUSTER) == pytest.approx(0)


def test_three_clusters_give_the_mean_over_pairs_and_name_the_worst() -> None:
    confusion = np.array([[[1, 0], [0, 1]], [[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    cluster = ["a", "b", "c"]
    got = fairness.pairwise(confusion, cluster, fairness.tpr_distance)
    assert got.value == {("a", "b"): 0, ("a", "c"): 1, ("b", "c"): 1}
    assert got.worst == ("a", "c")
    assert fairness.equalized_odds_tpr(confusion, cluster) == pytest.approx(2 / 3)


def test_two_clusters_have_one_pair_with_the_headline_value() -> None:
    got = fairness.pairwise(CONFUSION, CLUSTER, fairness.odds_distance)
    assert got.value == {(0, 1): fairness.equalized_odds(CONFUSION, CLUSTER)}


def test_one_cluster_has_nothing_to_compare() -> None:
    assert math.isnan(fairness.demographic_parity(CONFUSION, [0, 0, 0]))
    assert fairness.pairwise(CONFUSION, [0, 0, 0], fairness.parity_distance).worst is None


def test_a_class_that_a_cluster_never_shows_is_left_out() -> None:
    confusion = np.array([[[2, 2], [0, 4]], [[4, 0], [0, 0]]])
    assert fairness.equalized_odds_tpr(confusion, [0, 1]) == pytest.approx(0.5)
    assert not math.isnan(fairness.equalized_odds(confusion, [0, 1]))


def test_a_cluster_without_samples_leaves_no_value_and_no_warning() -> None:
    confusion = np.array([[[1, 0], [0, 1]], [[0, 0], [0, 0]]])
    assert math.isnan(fairness.equalized_odds(confusion, [0, 1]))


@given(COUNTS)
def test_fairness_is_bounded_and_blind_to_the_order_of_nodes(counts: np.ndarray) -> None:
    cluster = np.array([0, 0, 0, 1, 1])
    turned = counts[::-1], cluster[::-1]
    for value in (fairness.demographic_parity, fairness.equalized_odds_tpr):
        assert 0 <= value(counts, cluster) <= 1
    assert 0 <= fairness.equalized_odds(counts, cluster) <= 2
    assert fairness.equalized_odds(*turned) == pytest.approx(
        fairness.equalized_odds(counts, cluster)
    )


@given(COUNTS)
def test_clusters_treated_alike_are_fair(counts: np.ndarray) -> None:
    both = np.concatenate([counts, counts])
    assert fairness.equalized_odds(both, [0] * 5 + [1] * 5) == pytest.approx(0)
    assert fairness.demographic_parity(both, [0] * 5 + [1] * 5) == pytest.approx(0)


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [((64.03, 63.80), 75.87), ((71.99, 38.77), 59.18), ((73.32, 59.96), 73.31)],
)
def test_fair_accuracy_gives_the_thesis_numbers(
    accuracies: tuple[float, float], expected: float
) -> None:
    assert fairness.fair_accuracy(accuracies) == pytest.approx(expected, abs=0.011)


def test_gap_and_worst_cluster_ignore_clusters_without_samples() -> None:
    assert fairness.gap([90.0, 60.0, math.nan]) == 30
    assert fairness.worst_cluster({"a": 90.0, "b": 60.0, "c": math.nan}) == "b"
    assert math.isnan(fairness.gap([])) and fairness.worst_cluster({}) is None


def test_all_distances_come_with_their_worst_and_every_pair() -> None:
    confusion = np.array([[[4, 0], [0, 4]], [[3, 1], [0, 4]], [[0, 4], [4, 0]]])
    got = fairness.compare(confusion, ["a", "b", "c"])
    assert [pair["clusters"] for pair in got["pairs"]] == [["a", "b"], ["a", "c"], ["b", "c"]]
    for key in fairness.DISTANCES:
        values = [pair[key] for pair in got["pairs"]]
        assert got[key] == pytest.approx(np.mean(values))
        assert got[f"{key}_worst"] == max(values)
    assert got["equalized_odds"] == fairness.equalized_odds(confusion, ["a", "b", "c"])
    assert got["equalized_odds_worst"] == pytest.approx(2)  # a and c: everything is turned round


def test_a_lone_cluster_has_no_pairs() -> None:
    got = fairness.compare(CONFUSION, [0, 0, 0])
    assert got["pairs"] == [] and math.isnan(got["equalized_odds_worst"])
