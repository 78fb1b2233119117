"""Your own model and data: two functions. A configuration file names them "module:function"."""

import os

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


rounds = int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "60"))
config = coterie.Config(
    experiment={"name": "circle", "seeds": [1], "rounds": rounds},
    data={"source": load, "clusters": [{"name": "all", "nodes": 8}]},
    train={"lr": 0.2},
    model={"name": build, "width": 24},
    algorithm=[coterie.Local(), coterie.EpidemicLearning()],
)
results = coterie.results(coterie.run(config))
print(results[["label", "accuracy_all"]].to_string(index=False))
