"""The run folder, and `summary.json` above all: what other programs rely on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import coterie
from coterie.config import load
from coterie.links.wire import Frame, encode
from coterie.models import Shape, build_model
from tests.contract.command import tiny

NUMBER = (int, float)
RESULT = {  # key -> type; every entry of `results` has exactly these
    "label": str,
    "scenario": str,
    "seed": int,
    "algorithm": str,
    "oracle": bool,
    "nodes": int,
    "rounds": int,
    "metric": str,
    "accuracy": (dict, type(None)),
    "accuracy_all": (*NUMBER, type(None)),
    "mse": (dict, type(None)),
    "mse_all": (*NUMBER, type(None)),
    "loss_all": (*NUMBER, type(None)),
    "worst_node": NUMBER,
    "best_node": NUMBER,
    "worst_cluster": (str, type(None)),
    "worst_cluster_accuracy": (*NUMBER, type(None)),
    "gap": NUMBER,
    "demographic_parity_worst": (*NUMBER, type(None)),
    "equalized_odds_worst": (*NUMBER, type(None)),
    "equalized_odds_tpr_worst": (*NUMBER, type(None)),
    "pairs": (list, type(None)),
    "worst_tenth": NUMBER,
    "accuracy_variance": NUMBER,
    "jain_index": NUMBER,
    "consensus_distance": NUMBER,
    "demographic_parity": (*NUMBER, type(None)),
    "equalized_odds": (*NUMBER, type(None)),
    "equalized_odds_tpr": (*NUMBER, type(None)),
    "fair_accuracy": (*NUMBER, type(None)),
    "bytes_per_node": NUMBER,
    "server_bytes": (*NUMBER, type(None)),
    "rounds_to_target": (*NUMBER, type(None)),
    "settled": (bool, type(None)),
    "first_settled_round": (int, type(None)),
    "adjusted_rand_index": (*NUMBER, type(None)),
    "settlement": (str, type(None)),
    "models": (int, type(None)),
    "restarts": int,
    "abandoned": list,
    "train_seconds": NUMBER,
    "parity_reason": (str, type(None)),
    "before_all_reduce": (dict, type(None)),
    "unseen": (dict, type(None)),
    "notes": dict,
    "everywhere": (dict, type(None)),
}
PROMISED = {  # by the design
    *("label", "scenario", "seed", "algorithm", "nodes", "rounds", "metric", "accuracy"),
    *("accuracy_all", "demographic_parity", "equalized_odds", "equalized_odds_tpr"),
    *("fair_accuracy", "bytes_per_node", "settled", "train_seconds"),
}
TABLES = tiny(
    experiment={"name": "two ratios", "seeds": [3, 5, 8], "rounds": 3},
    data__ratios=["4:2", "5:1"],
    algorithm=[
        {"name": "epidemic", "degree": 2},
        {"name": "epidemic", "degree": 4, "label": "denser", "train": {"lr": 0.2}},
        {"name": "facade", "degree": 2, "warmup": 1, "all_reduce": True},
        {"name": "local"},
    ],
)


def carry_out(folder: Path, **tables: object) -> SimpleNamespace:
    """A run: its folder, what it returned and what it wrote."""
    returned = coterie.run(coterie.Config.model_validate(tables), folder, device="cpu")
    written = json.loads((folder / "summary.json").read_text())
    return SimpleNamespace(folder=folder, returned=returned, **written)


def alone(folder: Path, **changes: object) -> dict:
    """The only result of a tiny run."""
    (result,) = carry_out(folder, **tiny(**changes)).results
    return result


def records_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return carry_out(tmp_path_factory.mktemp("runs") / "made", **TABLES)


def of(made, label):
    return [result for result in made.results if result["label"] == label]


def test_the_summary_is_what_run_returns(made):
    assert made.returned == json.loads((made.folder / "summary.json").read_text())


def test_the_summary_says_when_an_accuracy_was_reached(tmp_path):
    changes = {"experiment__rounds": 3, "evaluate__every": 1}
    first = alone(tmp_path / "all", **changes, evaluate__target=0.001)
    assert 1 <= first["rounds_to_target"] <= 3
    assert alone(tmp_path / "none", **changes)["rounds_to_target"] is None


def test_there_is_one_result_for_each_label_scenario_and_seed(made):
    keys = [(r["label"], r["scenario"], r["seed"]) for r in made.results]
    labels = ["epidemic", "denser", "facade", "local"]
    wanted = {(a, s, seed) for a in labels for s in ("4:2", "5:1") for seed in (3, 5, 8)}
    assert len(keys) == len(wanted) and set(keys) == wanted
    assert made.order == labels
    assert made.clusters == ["upright", "turned"]
    assert made.name == "two ratios"


def test_every_result_has_the_promised_keys_and_types(made):
    assert set(RESULT) >= PROMISED
    for result in made.results:
        assert result.keys() == RESULT.keys()
        for key, kind in RESULT.items():
            assert isinstance(result[key], kind), (key, result[key])


def test_a_label_is_not_an_algorithm(made):
    assert {r["algorithm"] for r in of(made, "denser")} == {"epidemic"}
    assert {r["algorithm"] for r in of(made, "facade")} == {"facade"}


def test_accuracies_are_percent_and_parities_fractions(made):
    for result in made.results:
        assert result["metric"] == "accuracy" and result["mse"] is None
        assert set(result["accuracy"]) == {"upright", "turned"}
        assert max(result["accuracy"].values()) > 1
        assert all(0 <= value <= 100 for value in result["accuracy"].values())
        assert 0 <= result["demographic_parity"] <= 1
        assert 0 <= result["equalized_odds_tpr"] <= result["equalized_odds"]
        assert result["rounds"] == 3 and result["nodes"] == 6


def test_the_accuracy_of_all_counts_every_node_once(made):
    for result in made.results:
        nodes = dict(
            zip(["upright", "turned"], map(int, result["scenario"].split(":")), strict=True)
        )
        mean = sum(result["accuracy"][c] * count for c, count in nodes.items()) / 6
        assert result["accuracy_all"] == pytest.approx(mean)


def test_fair_accuracy_is_two_thirds_accuracy_and_one_third_evenness(made):
    for result in made.results:
        values = list(result["accuracy"].values())
        fair = 2 / 3 * np.mean(values) + 1 / 3 * (100 - (max(values) - min(values)))
        assert result["fair_accuracy"] == pytest.approx(fair)


def test_only_an_algorithm_that_chooses_can_settle(made):
    assert all(isinstance(r["settled"], bool) for r in of(made, "facade"))
    assert all(r["settled"] is None for r in made.results if r["label"] != "facade")


def test_the_aggregate_has_mean_spread_and_interval_over_seeds(made):
    assert list(made.aggregate) == made.order
    for label, scenarios in made.aggregate.items():
        for scenario, keys in scenarios.items():
            group = [r for r in of(made, label) if r["scenario"] == scenario]
            for name in ("upright", "turned"):
                values = [r["accuracy"][name] for r in group]
                found = keys[f"accuracy:{name}"]
                assert found["mean"] == pytest.approx(np.mean(values))
                assert found["std"] == pytest.approx(np.std(values, ddof=0))
                low, high = found["ci95"]
                assert low <= found["mean"] <= high
            assert keys["fair_accuracy"]["mean"] == pytest.approx(
                np.mean([r["fair_accuracy"] for r in group])
            )
            assert keys["mse_all"]["mean"] is None


def test_one_seed_has_no_interval(tmp_path):
    made = carry_out(tmp_path / "run", **tiny())
    found = made.aggregate["epidemic"]["4:2"]["accuracy_all"]
    assert found["std"] == 0 and found["ci95"] is None


def test_bytes_are_frames_times_neighbors_times_rounds(made):
    columns = 64 * 10 + 10
    frame = len(encode(Frame(bytes(16), 0, 0, 0, "send", {"params": torch.zeros(1, columns)})))
    assert 4 * columns < frame < 4 * columns + 400
    assert {r["bytes_per_node"] for r in of(made, "epidemic")} == {frame * 2 * 3}
    assert {r["bytes_per_node"] for r in of(made, "denser")} == {frame * 4 * 3}
    assert {r["bytes_per_node"] for r in of(made, "local")} == {0}


def test_facade_sends_core_head_and_choice(made):
    rows = {  # of a logistic model everything is head
        "core": torch.zeros(1, 0),
        "head": torch.zeros(1, 650),
        "choice": torch.zeros(1, dtype=torch.int64),
    }
    frame = len(encode(Frame(bytes(16), 0, 0, 0, "send", rows)))
    assert {r["bytes_per_node"] for r in of(made, "facade")} == {frame * 2 * 3}


def test_the_metrics_before_an_all_reduce_are_kept(made):
    for result in made.results:
        before = result["before_all_reduce"]
        assert (before is None) == (result["label"] != "facade")
        if before:
            assert set(before["accuracy"]) == {"upright", "turned"}
            assert before["accuracy"] != result["accuracy"]


def test_an_all_reduce_makes_all_models_of_epidemic_learning_equal(tmp_path):
    algorithm = [{"name": "epidemic", "degree": 2, "all_reduce": True}]
    alone(tmp_path / "run", algorithm=algorithm)
    models = [load_file(path) for path in sorted((tmp_path / "run").rglob("node-*.safetensors"))]
    assert len(models) == 6
    for model in models:
        torch.testing.assert_close(model, models[0])


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


def test_the_run_folder_is_complete(made):
    assert {path.name for path in made.folder.iterdir()} == {
        *("config.toml", "records.jsonl", "summary.json", "environment.json"),
        *("checkpoints", "models"),
    }
    environment = json.loads((made.folder / "environment.json").read_text())
    assert {"commit", "python"} <= set(environment) and "torch" in str(environment)
    assert not list(made.folder.rglob("*.tmp"))


def test_records_are_one_line_of_json_per_evaluation_and_node_or_cluster(made):
    records = records_of(made.folder)
    nodes = [r for r in records if r["kind"] == "node" and r["phase"] == "round"]
    clusters = [r for r in records if r["kind"] == "cluster" and r["phase"] == "round"]
    assert len(nodes) == 4 * 2 * 3 * 3 * 6  # labels, ratios, seeds, rounds, nodes
    assert len(clusters) == 4 * 2 * 3 * 3 * 2
    finals = {r["label"] for r in records if r.get("phase") == "final"}
    assert finals == {"facade"}


def test_the_last_records_are_the_results(made):
    records = records_of(made.folder)
    for result in made.results:
        where = {key: result[key] for key in ("label", "scenario", "seed")} | {"kind": "cluster"}
        last = {r["cluster"]: r["accuracy"] for r in records if where.items() <= r.items()}
        assert last == pytest.approx(result["accuracy"])


def test_every_node_has_a_model_file_that_its_module_can_load(made):
    files = sorted(made.folder.glob("models/denser/5-1/seed-8/*.safetensors"))
    assert [path.stem for path in files] == [f"node-{i}" for i in range(6)]
    module = build_model({"name": "logistic"}, Shape((1, 8, 8), 10))()
    module.load_state_dict(load_file(files[0]))


def test_the_model_files_of_batch_norm_load_strictly_but_for_the_batch_counter(tmp_path):
    alone(tmp_path / "run", model={"name": "resnet8"}, train__steps=1, experiment__rounds=1)
    named = load_file(next((tmp_path / "run").rglob("node-0.safetensors")))
    module = build_model({"name": "resnet8"}, Shape((1, 8, 8), 10))()
    missing, unexpected = module.load_state_dict(named, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)


def test_the_written_configuration_runs_again_to_the_same_numbers(made, tmp_path):
    config = load(made.folder / "config.toml")
    again = coterie.run(config, tmp_path / "again", device="cpu")
    for result, before in zip(again["results"], made.results, strict=True):
        assert {**result, "train_seconds": 0} == {**before, "train_seconds": 0}
    assert (tmp_path / "again/config.toml").read_text() == (made.folder / "config.toml").read_text()


def test_the_memory_link_gives_the_same_results(made, tmp_path):
    over = {**TABLES, "runtime": {"link": "memory", "models": False}}
    over["algorithm"] = [TABLES["algorithm"][0]]
    again = carry_out(tmp_path / "run", **over)
    for result, before in zip(again.results, of(made, "epidemic"), strict=True):
        assert result["accuracy"] == pytest.approx(before["accuracy"], abs=1)
        assert result["bytes_per_node"] == before["bytes_per_node"]


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


def test_too_few_nodes_to_keep_some_from_training_are_refused(tmp_path):
    with pytest.raises(coterie.InputError, match=r"evaluate\.unseen_clients: 0\.05 of 6 nodes"):
        carry_out(tmp_path / "run", **tiny(evaluate={"unseen_clients": 0.05}))


def test_the_loss_of_all_is_that_of_the_last_record(made):
    kept = ("label", "scenario", "seed")
    last = {tuple(r[k] for k in kept): r for r in records_of(made.folder) if r["kind"] == "overall"}
    for result in made.results:
        assert result["loss_all"] == last[tuple(result[k] for k in kept)]["loss"] > 0


def test_fairness_between_nodes_is_measured(made):
    for result in made.results:
        assert result["worst_node"] <= result["worst_tenth"] <= result["accuracy_all"]
        assert result["accuracy_all"] <= result["best_node"]
        assert result["accuracy_variance"] >= 0
        assert 1 / result["nodes"] <= result["jain_index"] <= 1 + 1e-9
