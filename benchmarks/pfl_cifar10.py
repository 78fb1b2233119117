"""How long does pfl-research's public CIFAR-10 benchmark take? FedAvg, 1,000 users of 50 images.

    COTERIE_DATA=... python benchmarks/pfl_cifar10.py [--rounds 1500] [--source digits ...]

The set-up: users IID, 50 of them a round, one local epoch in batches of 10, SGD at 0.1, a network
of two 3x3 convolutions and a hidden layer of 128, evaluation on all test images every 10 rounds.
Theirs has dropout, ours none: random masks would have to be keyed. Two rounds are played first
(kernels are compiled, if there are any to compile). `total` counts everything from there on:
reading the data, dealing them, all rounds, evaluations and records. Small, on a CPU:

    python benchmarks/pfl_cifar10.py --source digits --users 40 --cohort 5 --rounds 20
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coterie import config
from coterie.models import Shape
from coterie.part import PartRun, Watch
from coterie.run import make_parts, prepare


def build(shape: Shape) -> nn.Module:
    """Two convolutions without padding, a pool, a hidden layer; Glorot's initial weights."""
    channels, height, width = shape.sample
    features = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    net = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(),
        nn.Linear(128, shape.outputs),
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return net


def table(options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """The run as a configuration."""
    return {
        "experiment": {"name": "pfl-cifar10", "seeds": [options.seed], "rounds": rounds},
        "data": {
            "source": options.source,
            "clusters": [{"name": "all", "nodes": options.users}],
            "holdout": 0.0,
        },
        "model": {"name": build},
        "train": {"epochs": 1, "batch": 10, "lr": 0.1, "precision": options.precision},
        "algorithm": [{"name": options.algorithm, "clients": options.cohort}],
        "evaluate": {"every": min(10, rounds)},
        "runtime": {"models": False, "checkpoint_every": rounds},
    }


def play(options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """Seconds in all and of the rounds alone, and what was reached."""
    started = time.perf_counter()
    setup = prepare(config.parse(table(options, rounds)), options.device)
    (part,) = make_parts(setup)
    ready = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        (result,) = PartRun(setup.config, part, Path(folder), Watch()).play()
    ended = time.perf_counter()
    measured = {"total": ended - started, "rounds_alone": ended - ready}
    return {**measured, "accuracy": result["accuracy_all"], "server_bytes": result["server_bytes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--source", default="cifar10")
    parser.add_argument("--algorithm", default="fedavg")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    play(options, 2)
    measured = play(options, options.rounds)
    on_gpu = torch.cuda.is_available() and options.device != "cpu"
    machine = torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} CPU cores"
    print(
        f"{options.users} users, {options.cohort} a round, {options.rounds} rounds: "
        f"{measured['total']:.1f} s ({measured['rounds_alone']:.1f} s without the data), "
        f"accuracy {measured['accuracy']:.2f}%"
    )
    print(json.dumps({"benchmark": "pfl_cifar10", "machine": machine, **vars(options), **measured}))


if __name__ == "__main__":
    main()
