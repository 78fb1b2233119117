"""A run that was stopped goes on exactly where it was: same numbers, same records."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.contract.command import begin, tiny, write

LONG = tiny(
    experiment={"name": "long", "seeds": [1, 2], "rounds": 40},
    algorithm=[
        {"name": "epidemic", "degree": 2, "all_reduce": True},
        {"name": "facade", "degree": 2, "warmup": 5, "samples": 8, "all_reduce": True},
    ],
    evaluate={"every": 7},
    runtime={"checkpoint_every": 2},
)
ROUNDS = ["--set", "experiment.rounds=9"]


def summary(folder: Path) -> dict:
    """All of summary.json but times."""
    found = json.loads((folder / "summary.json").read_text())
    for result in found["results"]:
        result.pop("train_seconds")
    for scenarios in found["aggregate"].values():
        for keys in scenarios.values():
            keys.pop("train_seconds")
    return found


def same_run(folder: Path, other: Path) -> None:
    """Equal numbers, records, models and configuration."""
    assert summary(folder) == summary(other)
    for name in ("records.jsonl", "config.toml"):
        assert (folder / name).read_text() == (other / name).read_text()
    models = {path.relative_to(folder) for path in (folder / "models").rglob("*.safetensors")}
    assert models
    for path in models:
        assert (folder / path).read_bytes() == (other / path).read_bytes()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Until a file is there; the process has to live that long."""
    for _ in range(60_000):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    raise AssertionError(f"{path} never came")


def interrupt(file: Path, name: str, sign: signal.Signals, when: str) -> tuple[int, str]:
    """Start a run, send it a signal as soon as a file is there; its exit code and output."""
    process = begin("run", file, "--out", name, cwd=file.parent)
    try:
        wait_for(file.parent / name / "checkpoints" / when, process)
        process.send_signal(sign)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert not (file.parent / name / "checkpoints" / "facade.done.json").exists()
    return process.returncode, out + err


@pytest.fixture
def file(coterie, here):
    return write(here / "long.toml", LONG)


def test_a_killed_run_goes_on_to_the_same_numbers(coterie, here, file):
    code, _ = interrupt(file, "killed", signal.SIGKILL, "facade.safetensors")
    assert code == -signal.SIGKILL
    finished = here / "killed" / "checkpoints" / "epidemic.done.json"
    before = finished.stat().st_mtime_ns
    assert coterie("run", file, "--out", "killed", "--resume").code == 0
    assert finished.stat().st_mtime_ns == before, "a finished part was computed again"
    assert coterie("run", file, "--out", "whole").code == 0
    same_run(here / "killed", here / "whole")


def test_a_run_stopped_by_ctrl_c_can_be_read_and_goes_on(coterie, here, file):
    code, output = interrupt(file, "stopped", signal.SIGINT, "facade.safetensors")
    assert code == 130 and "Traceback" not in output
    assert "coterie run --out stopped --resume" in " ".join(output.split())
    assert coterie("report", "stopped").code == 0
    assert coterie("run", "--out", "stopped", "--resume").code == 0
    assert coterie("run", file, "--out", "whole").code == 0
    same_run(here / "stopped", here / "whole")


def test_a_run_stopped_before_its_first_evaluation_can_be_read(coterie, here):
    table = tiny(experiment__rounds=4000, evaluate__every=4000, runtime={"checkpoint_every": 1})
    file = write(here / "early.toml", table)
    code, output = interrupt(file, "early", signal.SIGTERM, "epidemic.safetensors")
    assert code == 143 and "Traceback" not in output
    (result,) = summary(here / "early")["results"]
    assert 1 <= result["rounds"] < 4000 and result["accuracy"]
    assert coterie("report", "early").code == 0


def test_a_longer_run_goes_on_from_a_finished_one(coterie, here, file):
    assert coterie("run", file, "--out", "longer", "--set", "experiment.rounds=5").code == 0
    assert coterie("run", file, "--out", "longer", "--resume", *ROUNDS).code == 0
    assert coterie("run", file, "--out", "whole", *ROUNDS).code == 0
    same_run(here / "longer", here / "whole")


def test_a_longer_run_keeps_the_evaluation_that_was_due_at_the_old_end(coterie, here, file):
    assert coterie("run", file, "--out", "longer", "--set", "experiment.rounds=7").code == 0
    assert coterie("run", file, "--out", "longer", "--resume", *ROUNDS).code == 0
    assert coterie("run", file, "--out", "whole", *ROUNDS).code == 0
    same_run(here / "longer", here / "whole")


@pytest.mark.parametrize("link", ["direct", "memory"])
def test_resuming_a_finished_run_changes_nothing(link, coterie, here, file):
    words = ["run", file, "--out", "out", *ROUNDS, "--set", f"runtime.link={link}"]
    assert coterie(*words).code == 0
    files = [p for p in (here / "out").rglob("*") if p.parent.name in ("checkpoints", "seed-1")]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    was = summary(here / "out")
    assert coterie(*words, "--resume").code == 0
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == before
    assert summary(here / "out") == was


def test_the_file_is_not_needed_to_resume(coterie, here, file):
    assert coterie("run", file, "--out", "out", *ROUNDS).code == 0
    file.unlink()
    assert coterie("run", "--out", "out", "--resume").code == 0


def test_a_comparison_goes_on_too(coterie, here, file):
    words = ["compare", file, "--algorithms", "local,epidemic", "--seeds", "2", "--out", "out"]
    assert coterie(*words, *ROUNDS).code == 0
    was = summary(here / "out")
    assert coterie(*words, *ROUNDS, "--resume").code == 0
    assert summary(here / "out") == was
    assert coterie("compare", "--out", "out", "--resume").code == 0  # the file is not needed
    assert summary(here / "out") == was


def test_a_report_of_an_unfinished_folder_says_how_to_go_on(coterie, here, file):
    interrupt(file, "killed", signal.SIGKILL, "epidemic.safetensors")
    outcome = coterie("report", "killed")
    assert outcome.code == 2 and "--resume" in outcome.err


def test_a_federated_run_goes_on_exactly_with_what_its_clients_kept(coterie, here):
    """Clients that have not taken part yet, newcomers and the server's bytes included."""
    table = tiny(
        experiment={"name": "fed", "seeds": [1, 2], "rounds": 6},
        algorithm=[{"name": "scaffold", "clients": 2}, {"name": "ifca", "clients": 2}],
        evaluate={"every": 3, "unseen_clients": 0.2},
        runtime={"checkpoint_every": 2},
    )
    file = write(here / "fed.toml", table)
    assert coterie("run", file, "--out", "part", "--set", "experiment.rounds=4").code == 0
    assert coterie("run", file, "--out", "part", "--resume").code == 0
    assert coterie("run", file, "--out", "whole").code == 0
    mine, theirs = summary(here / "part"), summary(here / "whole")
    assert mine["results"] == theirs["results"]
    assert mine["results"][0]["server_bytes"] > 0
