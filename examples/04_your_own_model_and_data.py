"""Your own model and data: two functions, named by import path as a configuration file would."""

import os
import tempfile
from pathlib import Path

import numpy as np
from torch import nn

import coterie


def load(samples=1200):
    """x_train, y_train, x_test, y_test: is a point inside the circle?"""
    points = np.random.default_rng(0).uniform(-1, 1, size=(samples, 2)).astype(np.float32)
    inside = (np.hypot(*points.T) < 0.8).astype(np.int64)
    return points[200:], inside[200:], points[:200], inside[:200]


def build(shape, width=16):
    """A module whose `head` names its last layer."""
    first, last = nn.Linear(*shape.sample, width), nn.Linear(width, shape.outputs)
    module = nn.Sequential(first, nn.ReLU(), last)
    module.head = ("2",)
    return module


if __name__ == "__main__":
    here = Path(__file__).stem  # this file as a module; elsewhere: "my_package.nets:build"
    config = coterie.Config(
        experiment={"seeds": [1], "rounds": int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "60"))},
        data={"source": f"{here}:load", "clusters": [{"name": "all", "nodes": 8}]},
        train={"lr": 0.2},
        model={"name": f"{here}:build", "width": 24},
        algorithm=[{"name": "local"}, {"name": "epidemic"}],
    )
    for result in coterie.run(config, Path(tempfile.mkdtemp()) / "run")["results"]:
        print(f"{result['label']:<10} {result['accuracy_all']:5.1f} %")
