"""The command as a user meets it: in this process for speed, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from coterie import cli

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code and both streams, their white space made plain."""

    code: int
    out: str
    err: str


@dataclass
class Command:
    """Calls `coterie` in this process."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *words: object) -> Outcome:
        self.capsys.readouterr()
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["coterie", *map(str, words)])
            patch.setattr(sys, "path", list(sys.path))
            patch.setenv("COLUMNS", "1000")  # messages in one line
            try:
                cli.main()
                code: Any = 0
            except SystemExit as end:
                code = end.code or 0
        out, err = self.capsys.readouterr()
        return Outcome(code, " ".join(out.split()), " ".join(err.split()))


def begin(*words: object, cwd: Path) -> subprocess.Popen[str]:
    """`coterie` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tiny(**changes: Any) -> dict[str, Any]:
    """The tables of a run that takes a moment; `algorithm__name="x"` changes `algorithm.name`."""
    table: dict[str, Any] = {
        "experiment": {"name": "tiny", "seeds": [1], "rounds": 2},
        "data": {
            "source": "digits",
            "clusters": [
                {"name": "upright", "nodes": 4},
                {"name": "turned", "nodes": 2, "shifts": ["rotation"]},
            ],
        },
        "model": {"name": "logistic"},
        "train": {"steps": 2},
        "algorithm": [{"name": "epidemic", "degree": 2}],
        "evaluate": {"every": 1},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            table.setdefault(section, {})[name] = value
        else:
            table[section] = value
    return table


def summary(folder: Path) -> dict:
    """What a run folder says in the end."""
    return json.loads((folder / "summary.json").read_text())


def write(path: Path, table: dict[str, Any]) -> Path:
    """The tables as a TOML file."""
    path.write_text(tomli_w.dumps(table))
    return path


def refused(outcome: Outcome, *fragments: str) -> None:
    """One message with all fragments, exit code 2, and no traceback."""
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("error: ") and outcome.err.count("error: ") == 1, outcome
    assert "Traceback" not in outcome.out + outcome.err
    for fragment in fragments:
        assert fragment in outcome.err, f"{fragment!r} is not in {outcome.err!r}"
