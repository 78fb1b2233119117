"""What a server notes of every round: in the records, the summary, and after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie

torch.set_num_threads(1)  # operations are tiny

MLP = {"name": "mlp", "hidden": [6]}
TABLES: dict[str, Any] = {
    "experiment": {"seeds": [1, 2], "rounds": 4},
    "data": {"clusters": [{"name": "all", "nodes": 6}]},
    "model": {"name": "fedcg", "base": MLP, "layers": ["*"], "domains": 2},
    "train": {"steps": 2, "batch": 4},
    "algorithm": [
        {"name": "fedcg", "clients": 3, "every": 10},
        {"name": "fedavg", "clients": 3, "model": MLP},
    ],
    "evaluate": {"every": 2, "unseen_clients": 0.34},
    "runtime": {"models": False},
}


def config(**experiment: Any) -> coterie.Config:
    table = {**TABLES, "experiment": {**TABLES["experiment"], **experiment}}
    return coterie.Config.model_validate(table)


def notes(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "note"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("notes") / "run"
    return folder, coterie.run(config(), folder, device="cpu")


def test_every_round_of_every_seed_has_its_notes(whole):
    folder, _ = whole
    found = notes(folder)
    names = {record["name"] for record in found}
    known = {"domains", "entropy", "live"}
    assert known < names and all(name.startswith("lambda ") for name in names - known)
    places = {(r["seed"], r["round"]) for r in found if r["name"] == "domains"}
    assert places == {(seed, t) for seed in (1, 2) for t in (1, 2, 3, 4)}
    assert {r["label"] for r in found} == {"fedcg"}, "FedAvg has none"
    counts = [r["values"] for r in found if r["name"] == "domains"]
    assert {sum(values) for values in counts} == {3 * 2 * 4}, "clients x steps x batch"


def test_the_summary_has_the_last_of_them(whole):
    folder, summary = whole
    by_label = {result["label"]: result for result in summary["results"]}
    last = {r["name"]: r["values"] for r in notes(folder) if r["seed"] == 2}
    expected = {name: values[0] for name, values in last.items() if len(values) == 1}
    assert by_label["fedcg"]["notes"] == expected and by_label["fedavg"]["notes"] == {}
    spread = summary["aggregate"]["fedcg"]["6"]["note:entropy"]
    assert spread["mean"] is not None and spread["std"] is not None
    assert by_label["fedcg"]["unseen"]["accuracy_all"] is not None, "newcomers were given a model"


def test_a_resumed_run_has_the_same_notes(whole, tmp_path):
    coterie.run(config(rounds=2), tmp_path / "run", device="cpu")
    coterie.run(config(), tmp_path / "run", device="cpu", resume=True)
    assert notes(tmp_path / "run") == notes(whole[0])
