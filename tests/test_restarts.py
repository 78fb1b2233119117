"""Runs that have not settled early start again with another seed, and say so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import coterie
from coterie import restarts
from coterie.core import Algorithm
from coterie.part import Stopped, Watch
from coterie.peers.choose import choose
from coterie.restarts import STEP
from coterie.run import make_parts, prepare

torch.set_num_threads(1)


@dataclass(frozen=True)
class Chosen:
    """A model a node, and the head it chose."""

    params: Tensor
    choice: Tensor


@dataclass(frozen=True)
class Stubborn(Algorithm):
    """Everybody trains alone and chooses head 0 for ever."""

    heads: int = 2

    def start(self, nodes):
        return Chosen(nodes.initial_params(), torch.zeros_like(nodes.ids))

    def round(self, t, state, nodes):
        return Chosen(nodes.train(state.params, t), state.choice)
        yield

    def personal(self, state, nodes):
        return state.params


@dataclass(frozen=True)
class Sorted(Stubborn):
    """Every node chooses a head of its own."""

    def start(self, nodes):
        return Chosen(nodes.initial_params(), nodes.ids)


STUBBORN = {"name": f"{__name__}:Stubborn", "label": "stubborn"}


def config_of(clusters=(3, 1), rounds=4, restart=2, algorithm=STUBBORN, **evaluate):
    names = ["majority", "minority"][: len(clusters)]
    return coterie.Config(
        experiment={"name": "again", "rounds": rounds, "seeds": [1, 2]},
        data={"clusters": [{"name": n, "nodes": c} for n, c in zip(names, clusters, strict=True)]},
        model={"name": "mlp", "hidden": [6]},
        train={"steps": 2, "precision": "float64"},
        algorithm=[algorithm],
        evaluate={"every": 2, "restart": restart, **evaluate},
        runtime={"models": False},
    )


def run(config, folder: Path, resume=False, watch=None):
    return coterie.run(config, folder, "cpu", resume, watch)["results"]


def numbers(results):
    """What a restart must not change."""
    return [{k: v for k, v in r.items() if k != "train_seconds"} for r in results]


def test_an_unsettled_run_starts_again_with_another_seed(tmp_path):
    first, second = run(config_of(restarts=2), tmp_path / "run")
    for result, seed in ((first, 1), (second, 2)):
        assert result["seed"] == seed and result["restarts"] == 2
        assert [start["seed"] for start in result["abandoned"]] == [seed, seed + STEP]
        assert {start["why"] for start in result["abandoned"]} == {
            "majority and minority share head 0"
        }
        assert {start["round"] for start in result["abandoned"]} == {2}
        assert result["settled"] is False and result["rounds"] == 4
    (plain, _) = run(config_of(restart=0), tmp_path / "plain")
    assert plain["restarts"] == 0 and plain["abandoned"] == []
    assert plain["accuracy"] != first["accuracy"]


def test_a_settled_run_is_left_as_it_is(tmp_path):
    table = {"name": f"{__name__}:Sorted"}
    again = run(config_of(clusters=(1, 1), algorithm=table), tmp_path / "run")
    assert [r["restarts"] for r in again] == [0, 0] and all(r["settled"] for r in again)
    plain = run(config_of(clusters=(1, 1), algorithm=table, restart=0), tmp_path / "plain")
    assert numbers(again) == numbers(plain)


@pytest.mark.parametrize("changes", [{"clusters": (4,)}, {"algorithm": {**STUBBORN, "heads": 1}}])
def test_where_there_is_nothing_to_sort_nothing_settles_and_nothing_starts_again(tmp_path, changes):
    results = run(config_of(**changes), tmp_path / "run")
    assert [(r["settled"], r["settlement"], r["restarts"]) for r in results] == [
        (None, None, 0)
    ] * 2


def test_only_those_that_are_lost_start_again(tmp_path, monkeypatch):
    tried = []

    def lost(config, trial, watch):
        tried.append(trial.nodes.population.seeds)
        assert trial.nodes.key.tolist() == list(range(4 * len(trial.replicas)))
        return {1: {"seed": 2, "round": 2, "why": "x"}} if len(tried) == 1 else {}

    monkeypatch.setattr(restarts, "_lost", lost)
    first, second = run(config_of(), tmp_path / "run")
    assert tried == [(1, 2), (2 + STEP,)]
    assert (first["restarts"], second["restarts"]) == (0, 1)
    plain = run(config_of(restart=0), tmp_path / "plain")
    assert numbers([first]) == numbers([plain[0]])
    assert second["accuracy"] != plain[1]["accuracy"]


def test_a_restarted_replica_keeps_its_data_and_clusters():
    (part,) = make_parts(prepare(config_of(), "cpu"))
    moved = restarts.reseeded(part, [[], [{"seed": 2}]])
    assert moved.nodes.population.seeds == (1, 2 + STEP)
    assert moved.nodes.train_data is part.nodes.train_data and moved.clusters == part.clusters
    alone = restarts.only(moved, [1])
    assert alone.nodes.population.seeds == (2 + STEP,) and alone.clusters == part.clusters[1:]
    assert torch.equal(alone.nodes.train_data.start, part.nodes.train_data.start[4:])
    same = moved.nodes[torch.arange(4, 8)].initial_params()
    assert torch.equal(alone.nodes.initial_params(), same)


def test_newcomers_meet_the_restarted_run(tmp_path):
    table = {"name": "facade", "degree": 2, "warmup": 1, "samples": 4}
    config = config_of(clusters=(6, 3), algorithm=table, restarts=1, unseen_clients=0.3)
    (part,) = make_parts(prepare(config, "cpu"))
    moved = restarts.reseeded(part, [[], [{"seed": 2}]])
    assert moved.newcomers.population.seeds == (1, 2 + STEP)
    assert restarts.only(moved, [1]).newcomers is None
    assert all(result["unseen"] is not None for result in run(config, tmp_path / "run"))


def test_a_resumed_run_tries_nothing_again(tmp_path):
    parts: list[str] = []
    watch = Watch(part=lambda name, done, rounds: parts.append(name))
    run(config_of(rounds=4), tmp_path / "run", watch=watch)
    assert parts == ["stubborn, trial 1", "stubborn, trial 2", "stubborn, trial 3", "stubborn"]
    parts.clear()
    longer = run(config_of(rounds=6), tmp_path / "run", resume=True, watch=watch)
    assert parts == ["stubborn"]
    assert numbers(longer) == numbers(run(config_of(rounds=6), tmp_path / "straight"))


def test_a_stop_during_a_trial_leaves_a_run_that_can_go_on(tmp_path):
    with pytest.raises(Stopped):
        run(config_of(), tmp_path / "run", watch=Watch(stop=lambda: True))
    on = run(config_of(), tmp_path / "run", resume=True)
    assert numbers(on) == numbers(run(config_of(), tmp_path / "straight"))


def test_a_run_that_was_stopped_in_its_second_trial_goes_on_there(tmp_path):
    parts: list[str] = []
    asked = iter([False, False, True])  # after each of two rounds of the first trial, then one more
    watch = Watch(part=lambda name, done, rounds: parts.append(name), stop=lambda: next(asked))
    with pytest.raises(Stopped):
        run(config_of(), tmp_path / "run", watch=watch)
    assert parts == ["stubborn, trial 1", "stubborn, trial 2"]
    parts.clear()
    on = run(config_of(), tmp_path / "run", True, Watch(part=lambda name, *_: parts.append(name)))
    assert parts == ["stubborn, trial 2", "stubborn, trial 3", "stubborn"]
    assert numbers(on) == numbers(run(config_of(), tmp_path / "straight"))


@pytest.mark.parametrize("link", ["direct", "memory"])
def test_facade_can_be_restarted_over_any_link(tmp_path, link):
    table = {"name": "facade", "degree": 2, "warmup": 1, "samples": 4}
    config = config_of(clusters=(4, 2), algorithm=table, restarts=1)
    config = coterie.Config(**config.model_dump() | {"runtime": {"link": link, "models": False}})
    results = run(config, tmp_path / "run")
    assert all(r["restarts"] in (0, 1) and len(r["abandoned"]) == r["restarts"] for r in results)
    assert all(start["bytes_per_node"] > 0 for r in results for start in r["abandoned"])


def test_who_chooses_nothing_has_nothing_to_restart(tmp_path):
    results = run(config_of(algorithm={"name": "local"}), tmp_path / "run")
    assert [r["restarts"] for r in results] == [0, 0]


def test_the_report_says_who_was_restarted(tmp_path):
    from coterie.report.page import write_report

    run(config_of(restarts=1), tmp_path / "run")
    page = write_report([tmp_path / "run"]).read_text()
    assert (
        "Started again with another seed, not settled after round 2: stubborn, seed 1 (1 x, then "
        "not settled) and stubborn, seed 2 (1 x, then not settled)." in page
    )
    assert "0/2, 2 restarted" in (tmp_path / "run" / "tables" / "results.md").read_text()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["aggregate"]["stubborn"]["3:1"]["restarts"]["mean"] == 1


def test_a_restart_comes_before_the_end():
    with pytest.raises(coterie.InputError, match=r"evaluate\.restart: expected a round before the"):
        config_of(rounds=2, restart=2)


def test_real_peers_cannot_be_restarted():
    with pytest.raises(coterie.InputError, match="real peers do not know the true clusters"):
        choose(config_of())
