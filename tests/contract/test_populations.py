"""Runs of other kinds: regressions, one, three and unlike clusters, nodes that do not train."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from tests.contract.command import tiny
from tests.contract.results import RESULT, alone, carry_out, of, records_of


def test_a_regression_has_mse_and_no_accuracy(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{a - 2 * b:.4f}" for a, b, c in rows]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *lines]))
    result = alone(
        tmp_path / "run",
        data__source={"name": "table", "path": str(tmp_path / "t.csv"), "task": "regression"},
        data__clusters=[{"name": "all", "nodes": 4}, {"name": "others", "nodes": 2}],
    )
    assert result["metric"] == "mse"
    assert set(result["mse"]) == {"all", "others"}
    assert all(value > 0 for value in result["mse"].values())
    for key in ("accuracy", "accuracy_all"):
        assert result[key] is None


def test_a_regression_has_every_key(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(f"{i},{i / 2}" for i in range(60)))
    source = {"name": "table", "path": str(tmp_path / "t.csv"), "task": "regression"}
    result = alone(
        tmp_path / "run", data__source=source, data__clusters=[{"name": "all", "nodes": 4}]
    )
    assert result.keys() == RESULT.keys()
    for key in ("worst_node", "fair_accuracy", "demographic_parity", "equalized_odds"):
        assert result[key] is None
    assert result["equalized_odds_tpr"] is None and result["mse_all"] > 0


def test_clusters_with_other_labels_are_not_compared_and_the_reason_is_given(tmp_path):
    clusters = [{"name": "a", "nodes": 4}, {"name": "b", "nodes": 2, "shifts": ["swap"]}]
    result = alone(tmp_path / "run", data__clusters=clusters)
    for key in ("demographic_parity", "equalized_odds", "equalized_odds_tpr"):
        assert result[key] is None
    assert "different labels" in result["parity_reason"]
    assert result["fair_accuracy"] is not None


def test_three_clusters_have_a_worst_one_and_are_compared_two_by_two(tmp_path):
    clusters = [{"name": name, "nodes": nodes} for name, nodes in (("a", 3), ("b", 2), ("c", 1))]
    result = alone(tmp_path / "run", data__clusters=clusters)
    assert [pair["clusters"] for pair in result["pairs"]] == [["a", "b"], ["a", "c"], ["b", "c"]]
    accuracy = result["accuracy"]
    assert accuracy[result["worst_cluster"]] == min(accuracy.values())
    assert result["worst_cluster_accuracy"] == min(accuracy.values())
    assert result["gap"] == pytest.approx(max(accuracy.values()) - min(accuracy.values()))
    for key in ("demographic_parity", "equalized_odds", "equalized_odds_tpr"):
        values = [pair[key] for pair in result["pairs"]]
        assert result[key] == pytest.approx(sum(values) / 3)
        assert result[f"{key}_worst"] == max(values)
    written = [r for r in records_of(tmp_path / "run") if r["kind"] == "overall"]
    assert written[-1]["gap"] == result["gap"] and "pairs" not in written[-1]


def test_one_cluster_is_compared_with_nobody(tmp_path):
    result = alone(tmp_path / "run", data__clusters=[{"name": "a", "nodes": 4}])
    assert result["demographic_parity"] is None and "one cluster" in result["parity_reason"]


def test_a_scenario_with_one_cluster_says_why_there_is_no_parity(tmp_path):
    made = carry_out(tmp_path / "run", **tiny(data__ratios=["4:2", "6:0"]))
    both, one = made.results
    assert both["demographic_parity"] is not None and both["parity_reason"] is None
    assert set(one["accuracy"]) == {"upright"}
    assert one["demographic_parity"] is None and "one cluster" in one["parity_reason"]


UNSEEN = tiny(
    experiment={"seeds": [3, 5], "rounds": 3},
    data__ratios=["8:4", "9:3"],
    algorithm=[{"name": "local"}, {"name": "epidemic"}, {"name": "fedavg", "clients": 3}],
    evaluate={"every": 2, "unseen_clients": 0.25},
)


def test_nodes_that_do_not_train_are_judged_by_what_they_get(tmp_path):
    made = carry_out(tmp_path / "run", **UNSEEN)
    for result in made.results:
        assert result.keys() == RESULT.keys() and result["nodes"] == 9
        assert (result["unseen"] is None) == (result["label"] == "local")
    for result in of(made, "fedavg"):  # one model for all, and every cluster is on both sides
        assert result["unseen"]["accuracy"] == pytest.approx(result["accuracy"])
    seen = [r for r in records_of(made.folder) if r["kind"] == "unseen"]
    assert len(seen) == 2 * 4 * 2  # labels that give something, replicas, evaluations
    assert {r["round"] for r in seen} == {2, 3}
    spread = made.aggregate["epidemic"]["8:4"]["unseen_accuracy_all"]
    assert spread["mean"] is not None and spread["std"] is not None
    assert made.aggregate["local"]["8:4"]["unseen_accuracy_all"]["mean"] is None
    assert len(list((made.folder / "models" / "fedavg").rglob("*.safetensors"))) == 9 * 4


def disjoint(classes):
    """Clusters of two nodes each that have no label in common."""
    return [
        {"name": f"c{number}", "nodes": 2, "shifts": [{"name": "labels", "classes": mine}]}
        for number, mine in enumerate(classes)
    ]


@pytest.mark.parametrize("test", [0.0, 0.2], ids=["a test split", "own test samples"])
def test_models_can_be_tested_on_what_all_nodes_are_tested_on(tmp_path, test):
    tables = tiny(
        experiment={"seeds": [3, 5], "rounds": 2},
        data={"source": "digits", "test": test, "clusters": disjoint([[0, 1, 2], [8, 9]])},
        train={"steps": 20},
        evaluate={"every": 1, "everywhere": True},
        algorithm=[{"name": "local"}, {"name": "fedavg", "fraction": 1.0}],
    )
    made = carry_out(tmp_path / "run", **tables)
    for result in of(made, "local"):  # knows its own labels alone
        assert result["everywhere"]["accuracy_all"] < 75 < result["accuracy_all"]
    for result in of(made, "fedavg"):  # one model, and the same samples for all
        (everywhere,) = set(result["everywhere"]["accuracy"].values())
        assert result["worst_node"] <= everywhere <= result["best_node"]
    assert made.aggregate["local"]["2:2"]["everywhere_accuracy_all"]["mean"] < 75


def test_what_tests_would_pick_is_told_beside_what_nodes_pick(tmp_path):
    tables = tiny(
        experiment={"seeds": [3, 5], "rounds": 2},
        evaluate={"every": 1, "by_tests": True},
        algorithm=[
            {"name": "facade", "degree": 2, "heads": 3, "warmup": 0, "all_reduce": True},
            {"name": "ifca", "models": 3},
            {"name": "local"},
        ],
    )
    made = carry_out(tmp_path / "run", **tables)
    for result in [*of(made, "facade"), *of(made, "ifca")]:
        assert result["by_tests"]["loss_all"] <= result["loss_all"] + 1e-6
    assert of(made, "local")[0]["by_tests"] is None
    told = made.aggregate["facade"]["4:2"]["by_tests_accuracy_all"]["mean"]
    assert told == pytest.approx(sum(r["by_tests"]["accuracy_all"] for r in of(made, "facade")) / 2)


def test_too_few_nodes_to_keep_some_from_training_are_refused(tmp_path):
    with pytest.raises(coterie.InputError, match=r"evaluate\.unseen_clients: 0\.05 of 6 nodes"):
        carry_out(tmp_path / "run", **tiny(evaluate={"unseen_clients": 0.05}))
