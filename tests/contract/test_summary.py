"""`summary.json` is a contract: its keys, their types and what they mean."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from coterie.errors import InputError
from coterie.links.wire import Frame, encode
from tests.contract.command import tiny
from tests.contract.results import PROMISED, RESULT, alone, carry_out, of, records_of


def test_the_summary_is_what_run_returns(made):
    assert made.returned == json.loads((made.folder / "summary.json").read_text())


def test_the_summary_says_when_an_accuracy_was_reached(tmp_path):
    changes = {"experiment__rounds": 3, "evaluate__every": 1}
    first = alone(tmp_path / "all", **changes, evaluate__target=0.001)
    assert 1 <= first["rounds_to_target"] <= 3
    assert alone(tmp_path / "none", **changes)["rounds_to_target"] is None


def test_models_whose_loss_is_no_number_are_said_to_have_diverged(tmp_path):
    lost = alone(tmp_path / "lost", train__lr=3e38)
    assert lost["diverged"] == lost["nodes"]
    assert alone(tmp_path / "fine")["diverged"] == 0


def test_a_run_stops_at_its_target_once_all_seeds_are_there(tmp_path):
    far = {"experiment__rounds": 40, "experiment__seeds": [1, 2], "evaluate__target": 60.0}
    results = carry_out(tmp_path / "stopped", **tiny(**far, evaluate__stop=True)).results
    whole = carry_out(tmp_path / "whole", **tiny(**far)).results
    last = max(r["rounds_to_target"] for r in whole)
    assert [r["rounds_to_target"] for r in results] == [r["rounds_to_target"] for r in whole]
    assert {r["rounds"] for r in results} == {int(np.ceil(last))} != {40}
    assert all(r["rounds"] == 40 for r in whole)


def test_a_run_whose_seeds_do_not_get_there_plays_all_rounds(tmp_path):
    result = alone(tmp_path, evaluate__target=100.0, evaluate__stop=True)
    assert result["rounds"] == 2 and result["rounds_to_target"] is None


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


def test_a_stop_needs_a_target(tmp_path):
    with pytest.raises(InputError, match=r"no evaluate\.target to stop at"):
        alone(tmp_path, evaluate__stop=True)
