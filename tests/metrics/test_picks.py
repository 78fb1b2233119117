"""How many of the peers that nodes picked are of their own cluster."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.metrics.picks import pick_records

CLUSTERS = ["a", "b", "a", "a", "b"]
PICKED = np.array([[2, 1], [4, -1], [1, 4], [0, 2], [-1, -1]])


def by_cluster(*given):
    return {record["cluster"]: record for record in pick_records({"round": 3}, *given)}


def test_the_share_is_over_all_peers_that_a_clusters_nodes_picked():
    found = by_cluster(range(5), PICKED, None, CLUSTERS)
    assert found["a"]["same"] == pytest.approx(3 / 6) and found["a"]["picks"] == 6
    assert found["b"]["same"] == 1 and found["b"]["picks"] == 1
    assert all(record["kind"] == "picked" and record["round"] == 3 for record in found.values())
    assert "competitive" not in found["a"]


def test_what_was_left_to_draw_is_told_as_mean_and_median():
    found = by_cluster(range(5), PICKED, np.array([1, 4, 2, 30, 8]), CLUSTERS)
    assert (found["a"]["competitive"], found["a"]["competitive_median"]) == (11, 2)
    assert (found["b"]["competitive"], found["b"]["competitive_median"]) == (6, 6)


def test_a_cluster_that_picked_nobody_has_no_record():
    assert by_cluster(range(5), np.full((5, 2), -1), None, CLUSTERS) == {}
    assert by_cluster(range(5), np.zeros((5, 0), np.int64), None, CLUSTERS) == {}
    assert by_cluster([], np.zeros((0, 2), np.int64), None, CLUSTERS) == {}


def test_peers_of_whom_nothing_is_known_do_not_count():
    found = by_cluster([0, 3], PICKED[[0, 3]], None, ["a", "", "a", "b"])
    assert found["a"] == {"kind": "picked", "round": 3, "cluster": "a", "same": 1.0, "picks": 1}
    assert found["b"]["same"] == 0 and found["b"]["picks"] == 2
    assert "" not in found
