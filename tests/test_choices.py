"""A run writes down whom nodes picked, and a resumed run writes the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.part import Stopped, Watch

CONFIG: dict[str, Any] = {
    "experiment": {"rounds": 7, "seeds": [1, 2]},
    "data": {
        "clusters": [
            {"name": "upright", "nodes": 4},
            {"name": "turned", "nodes": 2, "shifts": ["rotation"]},
        ]
    },
    "model": {"name": "logistic"},
    "train": {"steps": 2},
    "evaluate": {"every": 3, "samples": 50},
    "runtime": {"checkpoint_every": 2, "models": False},
    "algorithm": [
        {"name": "ppdl", "group": 2},
        {"name": "random", "degree": 2},
        {"name": "oracle", "degree": 1},
        {"name": "local"},
        {"name": "epidemic", "degree": 2},
    ],
}


def picked(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == "picked"]


def test_every_round_of_algorithms_that_pick_is_written(tmp_path):
    coterie.run(coterie.Config.model_validate(CONFIG), tmp_path / "run", device="cpu")
    found = picked(tmp_path / "run")
    assert {record["label"] for record in found} == {"ppdl", "random", "oracle"}
    for label, picks in {"ppdl": 2, "random": 2, "oracle": 1}.items():
        mine = [record for record in found if record["label"] == label]
        assert len(mine) == 7 * 2 * 2  # rounds, seeds, clusters
        sizes = {record["cluster"]: record["picks"] for record in mine}
        assert sizes == {"upright": 4 * picks, "turned": 2 * picks}
        assert all(("competitive" in record) == (label == "ppdl") for record in mine)
    assert {record["same"] for record in found if record["label"] == "oracle"} == {1.0}


def test_a_stop_in_the_last_round_of_an_algorithm_ends_the_run_before_the_next(tmp_path):
    config = coterie.Config.model_validate({**CONFIG, "algorithm": CONFIG["algorithm"][:2]})
    done: list[int] = []
    watch = Watch(round=done.append, stop=lambda: 7 in done)
    with pytest.raises(Stopped):
        coterie.run(config, tmp_path / "run", device="cpu", watch=watch)
    assert done == [1, 2, 3, 4, 5, 6, 7]
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {result["label"] for result in kept["results"]} == {"ppdl"}
    summary = coterie.run(config, tmp_path / "run", device="cpu", resume=True)
    assert len(summary["results"]) == 4


def test_a_stopped_run_goes_on_with_the_same_picks(tmp_path):
    config = coterie.Config.model_validate({**CONFIG, "algorithm": CONFIG["algorithm"][:2]})
    coterie.run(config, tmp_path / "whole", device="cpu")
    rounds = iter(range(100))
    with pytest.raises(Stopped):  # after round 5: neither evaluated nor saved, but for the stop
        watch = Watch(stop=lambda: next(rounds) >= 4)
        coterie.run(config, tmp_path / "stopped", device="cpu", watch=watch)
    coterie.run(config, tmp_path / "stopped", device="cpu", resume=True)
    assert picked(tmp_path / "stopped") == picked(tmp_path / "whole")
