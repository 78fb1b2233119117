"""How long is a whole run on real CIFAR-10? 32 nodes at 30:2, 1,200 rounds, evaluation every 80.

    COTERIE_DATA=... python benchmarks/full_run.py [--rounds 1200] [--seeds 1] [--precision tf32]

Each algorithm runs once for two rounds first (kernels are compiled), then whole; the time is
that of the whole run with its evaluations, after the data have been loaded. Prints a table
and JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from coterie import config
from coterie.part import PartRun, Watch
from coterie.run import make_parts, prepare

ALGORITHMS: list[dict[str, Any]] = [
    {"name": "epidemic", "train": {"lr": 0.05}},
    {"name": "facade", "train": {"lr": 0.01}, "warmup": 10, "samples": 80},
]


def table(rounds: int, seeds: int, precision: str, names: list[str]) -> dict[str, Any]:
    turned = [{"name": "rotation", "degrees": 180}]
    return {
        "experiment": {"name": "full", "seeds": seeds, "rounds": rounds},
        "data": {
            "source": "cifar10",
            "clusters": [
                {"name": "majority", "nodes": 30},
                {"name": "minority", "nodes": 2, "shifts": turned},
            ],
        },
        "model": {"name": "lenet"},
        "train": {"steps": 10, "batch": 8, "precision": precision},
        "algorithm": [table for table in ALGORITHMS if table["name"] in names],
        "evaluate": {"every": min(80, rounds)},
        "runtime": {"models": False, "checkpoint_every": 400},
    }


def play(settings: dict[str, Any]) -> dict[str, tuple[float, list[dict[str, Any]]]]:
    """Seconds and results of every algorithm."""
    setup = prepare(config.parse(settings))
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in make_parts(setup):
            started = time.perf_counter()
            results = PartRun(setup.config, part, Path(folder), Watch()).play()
            measured[part.label] = (time.perf_counter() - started, results)
            torch.cuda.empty_cache()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--algorithms", nargs="+", default=["epidemic", "facade"])
    options = parser.parse_args()
    rest = (options.seeds, options.precision, options.algorithms)
    play(table(2, *rest))
    measured = play(table(options.rounds, *rest))
    lines = []
    for label, (seconds, results) in measured.items():
        for result in results:
            accuracy = "  ".join(f"{name} {v:.2f}" for name, v in result["accuracy"].items())
            settled = result["settled"]
            print(f"{label:<10} {seconds:7.2f} s  seed {result['seed']}  {accuracy}  {settled=}")
            lines.append({"label": label, "seconds": seconds, **result})
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(json.dumps({"benchmark": "full_run", "machine": machine, "results": lines}))


if __name__ == "__main__":
    main()
