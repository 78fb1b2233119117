"""Where does a local step of FedCG's clients spend its time, and which way of branching is faster?

    python benchmarks/fedcg_step.py [--device cuda] [--rows 30] [--steps 20] [--few 0 8] [--cudnn]

A step is forward, backward and SGD of every client on its own batch (CelebA's sizes: 64x64, batch
5; FEMNIST's: 28x28, batch 10; half as many rows). `few`: with at most so many domains every branch
convolves every sample, with more each sample's kernels are mixed first. What the classifiers and
the branches cost is what is saved without them: `told` has no student and no teacher, `base` no
branches either. Prints a line of JSON each; `captured` says whether a CUDA graph is replayed. With
`--cudnn` a GPU computes convolutions as torch does, instead of with our kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from contextlib import nullcontext
from typing import Any

import torch

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, branches, build_model
from coterie.training import TrainingSettings, make_engine, objectives, optimizers
from coterie.training.stacked import StackedEngine

CELEBA, FEMNIST = {"name": "leaf-celeba", "port": True}, {"name": "leaf-femnist", "port": True}
ALL = ["conv*", "norm*"]
TOLD = {"by": "attributes"}
MODELS: dict[str, dict[str, Any]] = {
    "celeba base": CELEBA,
    "celeba last layer, told": {"name": "fedcg", "base": CELEBA, "layers": ["conv4"], **TOLD},
    "celeba last layer": {"name": "fedcg", "base": CELEBA, "layers": ["conv4"]},
    "celeba all layers, told": {"name": "fedcg", "base": CELEBA, "layers": ALL, **TOLD},
    "celeba all layers": {"name": "fedcg", "base": CELEBA, "layers": ALL},
    "celeba all layers, 32 told": {
        "name": "fedcg",
        "base": CELEBA,
        "layers": ALL,
        "domains": 32,
        **TOLD,
    },
    "femnist base": FEMNIST,
    "femnist told": {"name": "fedcg", "base": FEMNIST, "layers": ["conv2"], **TOLD},
    "femnist": {"name": "fedcg", "base": FEMNIST, "layers": ["conv2"]},
}


def make_nodes(name: str, device: torch.device, rows: int, steps: int, cudnn: bool) -> Nodes:
    """Clients with samples of noise."""
    spec, faces = MODELS[name], name.startswith("celeba")
    channels = (3 if faces else 1) + (spec.get("by") == "attributes")
    shape = Shape((channels, 64, 64) if faces else (channels, 28, 28), 2 if faces else 62)
    batch, owned = (5, 30) if faces else (10, 60)
    images = torch.randint(0, 4, (owned * 8, *shape.sample), dtype=torch.uint8, device=device)
    labels = torch.randint(0, shape.outputs, (len(images),), device=device)
    pool = Pool(images, labels, (0.0,) * channels, (1.0,) * channels)
    settings = TrainingSettings(
        *(objectives.build("classification"), optimizers.build("sgd"), shape.outputs),
        *(batch, device, torch.float32, "tf32" if device.type == "cuda" else "float32"),
    )
    engine = make_engine(build_model(spec, shape), shape.sample, settings, path="stacked")
    if cudnn:
        assert isinstance(engine, StackedEngine)
        engine.convolutions = nullcontext
    start = torch.arange(rows, device=device) % 8 * owned
    every = torch.arange(len(images), device=device)
    samples = Samples(pool, every, start, torch.full_like(start, owned))
    population = Population(rows, (1,), engine, LocalWork(batch, steps, None, 0.001))
    rates = torch.full((rows,), 0.001)
    return Nodes(population, torch.arange(rows), samples, samples, samples, rates)


def step_time(nodes: Nodes, steps: int, repeat: int = 5) -> float:
    """Milliseconds of one local step of all rows: the median of whole calls."""
    params = nodes.initial_params()
    nodes.train(params, 0)
    times = []
    for t in range(repeat):
        _wait(nodes.device)
        started = time.perf_counter()
        nodes.train(params, t)
        _wait(nodes.device)
        times.append((time.perf_counter() - started) / steps)
    return 1000 * statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measure every model, with branches separate or mixed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--rows", type=int, default=30)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--few", type=int, nargs="+", default=[0, 8, 32])
    options.add_argument("--cudnn", action="store_true")
    options.add_argument("--models", nargs="+", default=list(MODELS))
    given = options.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(given.device)
    for name in given.models:
        rows = given.rows if name.startswith("celeba") else max(given.rows // 2, 1)
        for few in [0] if name.endswith("base") else given.few:
            branches.FEW[device.type] = few
            nodes = make_nodes(name, device, rows, given.steps, given.cudnn)
            found = {"model": name, "rows": rows, "few": few, "cudnn": given.cudnn}
            found["ms_per_step"] = round(step_time(nodes, given.steps), 3)
            kept = getattr(nodes.population.engine, "captured", {})
            found["captured"] = any(steps.graph is not None for steps in kept.values())
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
