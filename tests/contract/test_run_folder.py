"""The run folder: complete, readable, and good for the same run again."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

import coterie
from coterie.config import load
from coterie.models import Shape, build_model
from tests.contract.results import TABLES, alone, carry_out, of, records_of


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
