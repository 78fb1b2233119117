import numpy as np
import pytest

from coterie.metrics import accuracy

CONFUSION = np.array([[[3, 1], [0, 0]], [[1, 1], [1, 1]], [[0, 0], [0, 0]]])


def test_accuracy_is_a_percentage_and_a_node_without_samples_has_none() -> None:
    got = accuracy.per_node(CONFUSION)
    assert got[:2].tolist() == [75, 50] and np.isnan(got[2])


def test_a_node_without_samples_is_left_out_of_every_mean() -> None:
    nodes = accuracy.per_node(CONFUSION)
    assert accuracy.overall(nodes) == 62.5
    assert accuracy.worst_node(nodes) == 50
    assert accuracy.best_node(nodes) == np.nanmax(nodes)
    assert accuracy.per_cluster(nodes, ["b", "a", "b"]) == {"a": 50, "b": 75}


def test_a_cluster_without_samples_has_no_accuracy() -> None:
    got = accuracy.per_cluster([np.nan, 1.0], [0, 1])
    assert np.isnan(got[0]) and got[1] == 1


def test_no_nodes_at_all_are_legal() -> None:
    nodes = accuracy.per_node(np.zeros((0, 2, 2)))
    assert nodes.shape == (0,)
    assert np.isnan(accuracy.overall(nodes)) and np.isnan(accuracy.worst_node(nodes))
    assert accuracy.per_cluster(nodes, []) == {}


def test_every_node_counts_once_whatever_its_number_of_samples() -> None:
    confusion = np.array([[[100, 0], [0, 0]], [[0, 1], [0, 0]]])
    assert accuracy.overall(accuracy.per_node(confusion)) == pytest.approx(50)
