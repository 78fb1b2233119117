"""What trains together: as many seeds, ratios and learning rates as fit, each with its own name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie
from coterie import stacking
from coterie.config import Config
from coterie.errors import InputError
from coterie.part import Watch
from coterie.run import make_parts, prepare

torch.set_num_threads(1)

SLOW = {"name": "epidemic", "degree": 2, "label": "slow", "train": {"lr": 0.02}}
FAST = {"name": "epidemic", "degree": 2, "label": "fast", "train": {"lr": 0.2}}


def config_of(*algorithms: dict[str, Any], rounds: int = 4, **runtime: Any) -> Config:
    clusters = [{"name": "majority"}, {"name": "minority", "shifts": [{"name": "rotation"}]}]
    return coterie.Config(
        experiment={"name": "stacked", "rounds": rounds, "seeds": [1, 2]},
        data={"clusters": clusters, "ratios": ["3:1", "2:2"]},
        model={"name": "mlp", "hidden": [6]},
        train={"steps": 2, "precision": "float64"},
        algorithm=list(algorithms),
        evaluate={"every": 2},
        runtime={"path": "loop", **runtime},  # row after row: a stack gives the bits of its rows
    )


def run(config: Config, folder: Path, resume: bool = False) -> tuple[list[dict[str, Any]], str]:
    """Results without their times, and the plan."""
    plans: list[str] = []
    summary = coterie.run(config, folder, "cpu", resume, Watch(plan=plans.append))
    results = [{k: v for k, v in r.items() if k != "train_seconds"} for r in summary["results"]]
    return results, "\n".join(plans)


def files(folder: Path, suffix: str) -> set[str]:
    found = (folder / "checkpoints").glob(f"*.{suffix}")
    return {path.name.removesuffix(f".{suffix}") for path in found}


def tight(monkeypatch: pytest.MonkeyPatch, replicas: int) -> None:
    """Leave room for so many replicas of the small model above."""
    one = make_parts(prepare(config_of(SLOW), "cpu"))[0]
    bound = stacking.Demand.of(one, replicas).bytes
    monkeypatch.setattr(stacking, "room", lambda device: bound)


def test_seeds_ratios_and_learning_rates_of_one_algorithm_are_one_stack(tmp_path: Path) -> None:
    local = {"name": "local", "train": {"lr": 0.02}}
    results, plan = run(config_of(SLOW, local, FAST), tmp_path / "run")
    assert "plan: slow+1 (slow, fast): 8 x 4 nodes = 32 rows" in plan
    assert "plan: local: 4 x 4 nodes = 16 rows" in plan
    assert files(tmp_path / "run", "done.json") == {"slow+1", "local"}
    assert [r["label"] for r in results] == ["slow"] * 4 + ["local"] * 4 + ["fast"] * 4
    where = [(r["scenario"], r["seed"]) for r in results[:4]]
    assert where == [("3:1", 1), ("3:1", 2), ("2:2", 1), ("2:2", 2)]


def test_stacked_learning_rates_give_what_each_gives_alone(tmp_path: Path) -> None:
    together, _ = run(config_of(SLOW, FAST), tmp_path / "both")
    alone = [run(config_of(one), tmp_path / one["label"])[0] for one in (SLOW, FAST)]
    assert together == alone[0] + alone[1]
    assert together[0]["accuracy"] != together[4]["accuracy"]
    kinds = {"overall", "cluster", "node"}
    for one in (SLOW, FAST):
        mine, his = (
            [
                r
                for line in path.read_text().splitlines()
                if (r := json.loads(line))["kind"] in kinds
            ]
            for path in (tmp_path / "both/records.jsonl", tmp_path / one["label"] / "records.jsonl")
        )
        assert [r for r in mine if r["label"] == one["label"]] == his
        model = f"models/{one['label']}/2-2/seed-2/node-3.safetensors"
        theirs = (tmp_path / one["label"] / model).read_bytes()
        assert (tmp_path / "both" / model).read_bytes() == theirs


@pytest.mark.parametrize("name", ["fedsgd", "scaffold"])
def test_a_server_uses_the_learning_rate_of_its_replica(name: str, tmp_path: Path) -> None:
    tables = [{"name": name, "label": str(lr), "train": {"lr": lr}} for lr in (0.02, 0.2)]
    together, _ = run(config_of(*tables, models=False), tmp_path / "both")
    alone = [run(config_of(one, models=False), tmp_path / one["label"])[0] for one in tables]
    assert together == alone[0] + alone[1]


def test_only_the_learning_rate_may_differ() -> None:
    tables = [
        SLOW,
        FAST,
        {**SLOW, "label": "degree", "degree": 3},
        {**SLOW, "label": "momentum", "train": {"optimizer": {"name": "sgd", "momentum": 0.9}}},
        {**SLOW, "label": "batch", "train": {"batch": 4}},
        {**SLOW, "label": "start", "train": {"common_start": True}},
        {"name": "local", "label": "other", "train": {"lr": 0.2}},
    ]
    groups = [[t.label for t in group] for group in stacking.alike(config_of(*tables))]
    rest = ["degree", "momentum", "batch", "start", "other"]
    assert groups == [["slow", "fast"], *([label] for label in rest)]


def test_over_a_link_nothing_is_stacked() -> None:
    groups = stacking.alike(config_of(SLOW, FAST, link="memory"))
    assert [len(group) for group in groups] == [1, 1]


def test_what_does_not_fit_is_cut_into_even_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = run(config_of(SLOW, FAST), tmp_path / "whole")
    tight(monkeypatch, 3)
    cut, plan = run(config_of(SLOW, FAST), tmp_path / "cut")
    assert [line.split(",")[0] for line in plan.splitlines()] == [
        "plan: slow+1.0: 3 x 4 nodes = 12 rows",
        "plan: slow+1.1 (slow",
        "plan: slow+1.2: 2 x 4 nodes = 8 rows",
    ]
    assert files(tmp_path / "cut", "done.json") == {"slow+1.0", "slow+1.1", "slow+1.2"}
    assert cut == whole


def test_one_replica_always_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "room", lambda device: 0)
    parts = make_parts(prepare(config_of(SLOW), "cpu"))
    assert [len(part.replicas) for part in parts] == [1, 1, 1, 1]


def test_the_data_are_moved_once_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "room", lambda device: 0)
    parts = make_parts(prepare(config_of(SLOW, {"name": "local"}), "cpu"))
    assert len({id(part.nodes.train_data.pool) for part in parts}) == 1
    assert len(parts) == 8


def test_a_run_that_goes_on_keeps_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        tight(patch, 3)
        run(config_of(SLOW, FAST, rounds=2), tmp_path / "run")
    on, plan = run(config_of(SLOW, FAST), tmp_path / "run", resume=True)
    assert len(plan.splitlines()) == 3, "there is room for all now, but the stack stays as it was"
    assert files(tmp_path / "run", "done.json") == {"slow+1.0", "slow+1.1", "slow+1.2"}
    assert on == run(config_of(SLOW, FAST), tmp_path / "straight")[0]


@pytest.mark.parametrize(
    "text, message",
    [
        ("[{", "cannot be read"),
        ('[{"name": "slow"}]', "cannot be read"),
        ('[{"name": "slow", "replicas": [["slow", "3:1", 1]]}]', "another configuration"),
    ],
)
def test_a_broken_plan_is_refused(text: str, message: str, tmp_path: Path) -> None:
    run(config_of(SLOW, rounds=2), tmp_path / "run")
    (tmp_path / "run/checkpoints/plan.json").write_text(text)
    with pytest.raises(InputError, match=message):
        run(config_of(SLOW), tmp_path / "run", resume=True)


def test_no_two_parts_have_one_name() -> None:
    confusing = {"name": "local", "label": "slow+1"}
    parts = make_parts(prepare(config_of(SLOW, FAST, confusing), "cpu"))
    assert [part.name for part in parts] == ["slow+1+", "slow+1"]


def test_heads_count_as_memory() -> None:
    few, many = (
        make_parts(prepare(config_of({"name": "facade", "degree": 2, "heads": heads}), "cpu"))[0]
        for heads in (1, 16)
    )
    assert stacking.Demand.of(many, 4).bytes > stacking.Demand.of(few, 4).bytes


def test_room_on_a_cpu_is_bounded() -> None:
    assert 0 < stacking.room(torch.device("cpu")) <= stacking.CPU_BYTES
