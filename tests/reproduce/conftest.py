"""The command, an empty folder to call it in, and an experiment that takes a moment."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.command import Command, write
from tests.contract.conftest import coterie, here

torch.set_num_threads(1)  # tests run side by side, and threads that wait for a core cost seconds

__all__ = ["coterie", "here"]

KEYS = ["accuracy:upright", "accuracy:turned", "accuracy_all", "fair_accuracy_of_means"]
TINY: dict[str, Any] = {
    "title": "Table 0: a moment",
    "differs": ["It is a test."],
    "settlement": True,
    "experiment": {"seeds": [5, 6], "rounds": 4},
    "data": {
        "source": "digits",
        "ratios": ["4:2", "3:3"],
        "clusters": [{"name": "upright"}, {"name": "turned", "shifts": ["rotation"]}],
    },
    "model": {"name": "logistic"},
    "train": {"steps": 2},
    "evaluate": {"every": 2, "samples": 60, "heads": True},
    "part": [
        {"name": "el", "algorithm": [{"name": "epidemic", "label": "EL", "degree": 2}]},
        {
            "name": "facade",
            "note": "two heads",
            "train": {"lr": 0.01},
            "algorithm": [{"name": "facade", "degree": 2, "warmup": 1, "samples": 8}],
        },
    ],
    "paper": {
        "source": "nobody, Table 0",
        "keys": KEYS,
        "values": {"EL": {"4:2": [[50.0, 1.0], [40.0, 1.0], 45.0, 60.0]}},
    },
    "figure": [
        {"name": "0.1", "kind": "gap", "labels": ["EL"], "scenarios": ["4:2"]},
        {"name": "rate", "kind": "rate"},
        {"name": "loss", "kind": "heads", "scenarios": ["4:2"], "seeds": 1},
    ],
}


def tiny() -> dict[str, Any]:
    """The tables of the experiment, to be changed."""
    return copy.deepcopy(TINY)


@pytest.fixture
def file(coterie: Command, here: Path) -> Path:
    """The experiment's file."""
    return write(here / "tiny.toml", tiny())
