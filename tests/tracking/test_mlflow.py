"""Runs in MLflow: in processes of their own, since MLflow keeps databases and threads open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomli_w

from coterie import config as configuration
from coterie.errors import InputError
from coterie.links.ports import reserved_ports
from coterie.peers import start
from coterie.peers.launch import LAUNCH, Launch, Order, ordered
from coterie.peers.stopping import Stop
from coterie.tracking import mlflow_store
from coterie.tracking.choose import tracker_of
from tests.contract.command import ROOT, tiny, write
from tests.contract.company import listed, real
from tests.contract.conftest import coterie, here
from tests.tracking.postgres import needs_postgres, postgres

__all__ = ["coterie", "here"]

ALONE = {
    "data__clusters": [{"name": "all", "nodes": 1}],
    "algorithm": [{"name": "local"}],
    "experiment__rounds": 2,
    "tracking": {"mlflow": "sqlite", "experiment": "tracked"},
}
needs_mlflow = pytest.mark.skipif(
    find_spec("mlflow") is None, reason="no MLflow: pip install 'coterie[mlflow]'"
)
LOOK = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
(place,) = [e for e in client.search_experiments() if e.name == "tracked"]
runs = client.search_runs([place.experiment_id])
print(json.dumps([
    {
        "name": run.info.run_name,
        "status": run.info.status,
        "params": run.data.params,
        "metrics": run.data.metrics,
        "steps": [m.step for m in client.get_metric_history(run.info.run_id, "accuracy")],
        "files": sorted(f.path for f in client.list_artifacts(run.info.run_id)),
    }
    for run in runs
]))
"""


def python(*words: object, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    environment |= {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tracked(folder: Path, uri: str) -> list[dict]:
    """What the store knows after a run of two algorithms that was told to track, and resumed."""
    algorithms = [{"name": "mcfl"}, {"name": "epidemic", "degree": 2}]
    table = tiny(tracking={"mlflow": uri, "experiment": "tracked"}, algorithm=algorithms)
    (folder / "run.toml").write_text(tomli_w.dumps(table))
    python("-m", "coterie", "run", "run.toml", "--out", "out", "--device", "cpu", cwd=folder)
    python("-m", "coterie", "run", "--out", "out", "--resume", "--device", "cpu", cwd=folder)
    where = f"sqlite:///{folder / 'mlflow.db'}" if uri == "sqlite" else uri
    return sorted(json.loads(python("-c", LOOK, where, cwd=folder)), key=lambda run: run["name"])


def check(runs: list[dict], folder: Path) -> None:
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert [run["name"] for run in runs] == ["epidemic · 4:2 · seed 1", "mcfl · 4:2 · seed 1"]
    for run, result in zip(runs, reversed(summary["results"]), strict=True):
        assert run["status"] == "FINISHED" and run["steps"] == [1, 2]
        assert run["params"]["algorithm.name"] == result["algorithm"]
        assert run["params"]["experiment.seed"] == "1" and run["params"]["train.steps"] == "2"
        assert run["metrics"]["accuracy"] == pytest.approx(result["accuracy_all"])
        assert run["metrics"]["turned.accuracy"] == pytest.approx(result["accuracy"]["turned"])
        assert {"config.toml", "summary.json", "records.jsonl", "dag.jsonl"} <= set(run["files"])
    assert runs[1]["params"]["algorithm.tolerance"] == "2.0"


@needs_mlflow
@pytest.mark.slow
def test_every_result_is_a_run_in_a_file(tmp_path):
    check(tracked(tmp_path, "sqlite"), tmp_path)


@needs_mlflow
@needs_postgres
@pytest.mark.slow
def test_every_result_is_a_run_in_a_real_postgresql(tmp_path):
    with postgres() as uri:
        check(tracked(tmp_path, uri), tmp_path)


@needs_mlflow
@pytest.mark.slow
def test_a_peer_is_a_run_of_its_own_and_only_once(tmp_path):
    with reserved_ports(1) as ports:
        write(tmp_path / "one.toml", real(**ALONE, peers=listed(ports)))
        for _ in range(2):
            words = ("peer", "one.toml", "--id", 0, "--out", "out", "--device", "cpu")
            python("-m", "coterie", *words, cwd=tmp_path)
    (run,) = json.loads(python("-c", LOOK, f"sqlite:///{tmp_path / 'mlflow.db'}", cwd=tmp_path))
    (result,) = json.loads((tmp_path / "out" / "summary.json").read_text())["results"]
    assert run["name"] == "local · 1 · seed 1 · peer 0" and run["status"] == "FINISHED"
    assert run["steps"] == [1, 2] and run["params"]["algorithm.name"] == "local"
    assert run["metrics"]["accuracy"] == pytest.approx(result["accuracy_all"])
    assert {"config.toml", "summary.json", "records.jsonl"} <= set(run["files"])


class Noted:
    """A tracker that only remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def log(self, folder: Path, who: str = "") -> int:
        assert (folder / "summary.json").exists(), "it is told after the last round"
        self.told.append((folder.name, who))
        return 1


def test_a_peer_tells_the_tracker_when_it_has_come_to_its_end(coterie, here, monkeypatch):
    noted = Noted()
    monkeypatch.setattr(start, "tracker_of", lambda config: noted)
    with reserved_ports(1) as ports:
        file = write(here / "one.toml", real(**ALONE, peers=listed(ports)))
        assert coterie("peer", file, "--id", 0, "--out", "out", "--dry-run").code == 0
        assert not noted.told
        for _ in range(2):  # one that is done says so again: the first time may have failed
            assert coterie("peer", file, "--id", 0, "--out", "out").code == 0
    assert noted.told == [("out", "peer 0")] * 2


def test_a_peer_that_cannot_track_refuses_before_it_opens_anything(coterie, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    file = write(here / "one.toml", real(**ALONE, peers=listed([7000])))
    outcome = coterie("peer", file, "--id", 0, "--out", "out")
    assert outcome.code == 2 and "pip install 'coterie[mlflow]'" in outcome.err
    assert "Traceback" not in outcome.err and not (here / "out").exists()


def test_a_launch_is_tracked_as_one_run_and_its_peers_are_not(tmp_path):
    table = real(tracking={"mlflow": "sqlite"})
    config = ordered(Order(configuration.parse(table)))
    with Stop() as stop:
        Launch(config, tmp_path, "cpu", lambda standings: None, stop)._write(config, [1, 2, 3, 4])
    assert "tracking" in tomllib.loads((tmp_path / "config.toml").read_text())
    assert "tracking" not in tomllib.loads((tmp_path / LAUNCH).read_text())


def test_without_mlflow_the_message_names_what_to_install_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    config = configuration.parse({"tracking": {"mlflow": "sqlite"}})
    with pytest.raises(InputError, match=r"pip install 'coterie\[mlflow\]'"):
        tracker_of(config)


def test_nothing_is_tracked_unless_it_is_asked_for():
    assert tracker_of(configuration.Config()) is None
    assert "tracking" not in configuration.Config().to_toml()


def test_tracking_changes_no_number_so_that_a_run_may_be_resumed_without_it(tmp_path):
    from coterie.run import _comparable

    config = configuration.parse({"tracking": {"mlflow": "sqlite:///elsewhere.db"}})
    assert _comparable(config) == _comparable(configuration.Config())
    assert configuration.parse(tomllib.loads(config.to_toml())) == config


def test_a_password_must_not_be_in_a_file_that_the_run_folder_keeps():
    uri = "postgresql://user:secret@host:5432/db"
    with pytest.raises(InputError, match="PGPASSWORD") as found:
        configuration.parse({"tracking": {"mlflow": uri}})
    assert "secret" not in str(found.value)
    configuration.parse({"tracking": {"mlflow": "postgresql://user@host:5432/db"}})


def test_names_are_as_mlflow_takes_them():
    assert mlflow_store._name("accuracy:größe|x") == "accuracy_größe_x"
