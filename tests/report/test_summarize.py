import json

import pytest

from coterie.report.summarize import aggregate, cluster_names, diverged

RESULTS = [
    {"label": "facade", "scenario": "3:1", "accuracy": {"a": 90.0, "b": 80.0}, "settled": True},
    {"label": "facade", "scenario": "3:1", "accuracy": {"a": 94.0, "b": 90.0}, "settled": False},
]


def test_the_aggregate_has_mean_std_and_interval_of_each_cluster() -> None:
    found = aggregate(RESULTS)["facade"]["3:1"]
    assert found["accuracy:a"]["mean"] == 92 and found["accuracy:a"]["std"] == 2
    # s / sqrt(2) = 2, t(0.975, 1) = 12.706
    assert found["accuracy:a"]["ci95"] == pytest.approx([92 - 25.412, 92 + 25.412], abs=1e-3)


def test_the_mean_of_settled_is_the_share_of_seeds() -> None:
    assert aggregate(RESULTS)["facade"]["3:1"]["settled"]["mean"] == 0.5


def test_what_no_seed_measured_is_null() -> None:
    found = aggregate(RESULTS)["facade"]["3:1"]
    assert found["bytes_per_node"] == {"mean": None, "std": None, "ci95": None}


def test_one_seed_has_no_interval() -> None:
    found = aggregate(RESULTS[:1])["facade"]["3:1"]["accuracy:b"]
    assert found == {"mean": 80, "std": 0, "ci95": None}


def test_in_the_mean_of_clusters_all_clusters_count_alike() -> None:
    found = aggregate(RESULTS)["facade"]["3:1"]["cluster_mean"]
    assert found["mean"] == pytest.approx((85 + 92) / 2) and found["std"] == pytest.approx(3.5)


def test_fair_accuracy_of_means_is_the_thesis_reading() -> None:
    found = aggregate(RESULTS)["facade"]["3:1"]["fair_accuracy_of_means"]
    assert found["mean"] == pytest.approx(2 / 3 * 88.5 + (100 - 7) / 3)


def test_the_aggregate_is_json_even_where_a_value_is_not_a_number() -> None:
    results = [{**RESULTS[0], "worst_node": float("nan")}]
    text = json.dumps(aggregate(results), allow_nan=False)
    assert json.loads(text)["facade"]["3:1"]["worst_node"]["mean"] is None


def test_no_results_have_an_empty_aggregate() -> None:
    assert aggregate([]) == {} and cluster_names([]) == []


def test_errors_are_aggregated_like_accuracies() -> None:
    results = [{"label": "x", "scenario": "s", "accuracy": None, "mse": {"a": 0.5}}]
    assert aggregate(results)["x"]["s"]["mse:a"]["mean"] == 0.5
    assert aggregate(results)["x"]["s"]["cluster_mean"]["mean"] is None


def test_seeds_that_diverged_are_named():
    fine = {"label": "el", "scenario": "4:2", "seed": 1, "nodes": 6, "diverged": 0}
    lost = fine | {"diverged": 6}
    assert diverged([fine]) == ""
    told = diverged([fine, lost | {"seed": 2}, lost | {"seed": 3, "diverged": 1}])
    assert "el (4:2): seed 2, 3 (1 of 6 nodes). Lower the learning rate" in told
