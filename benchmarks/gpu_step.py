"""How long is one local step of many models on a GPU, beside a plain loop over modules?

    python benchmarks/gpu_step.py [--rows 32 1024] [--models lenet lenet5 resnet8 ...] [--apart]
    python benchmarks/gpu_step.py --models autoencoder --rows 38 --batch 32

A step is forward, backward and SGD of every row on its own batch of 8; Adam for `autoencoder`
(the second line is a step of MCFL's experiment) and `mlp`. Times are medians of whole calls of
`train` (10 steps; drawing and reading the samples included) by CUDA events. The loop trains one
module after the other with torch.optim; for many rows its time is that of 32 rows, scaled. The path
`cudnn` is `stacked` with torch's own convolutions, a group for every row, instead of our kernels.
Prints a table and JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.training import TrainingSettings, make_engine, network, objectives, optimizers
from coterie.training.stacked import StackedEngine

STEPS, OWNED, DEVICE = 10, 100, "cuda"
PLAIN = {"cudnn": "stacked"}


@dataclass(frozen=True)
class Case:
    """What a model is trained for, and how."""

    shape: Shape
    objective: str = "classification"
    optimizer: str = "sgd"


CASES = {
    "lenet": Case(Shape((3, 32, 32), 10)),
    "lenet5": Case(Shape((1, 28, 28), 10)),
    "resnet8": Case(Shape((3, 64, 64), 41)),
    "mlp": Case(Shape((1, 28, 28), 10), optimizer="adam"),
    "autoencoder": Case(Shape((1, 28, 28), 10), "reconstruction", "adam"),
}


def make_nodes(model: str, rows: int, path: str, precision: str, batch: int) -> Nodes:
    device, case = torch.device(DEVICE), CASES[model]
    shape = case.shape
    size = (4096, *shape.sample)
    images = torch.randint(0, 256, size, dtype=torch.uint8, device=device)
    labels = torch.randint(0, shape.outputs, (4096,), device=device)
    channels = shape.sample[0]
    pool = Pool(images, labels, (0.5,) * channels, (0.5,) * channels)
    settings = TrainingSettings(
        objectives.build(case.objective),
        optimizers.build(case.optimizer),
        shape.outputs,
        batch,
        device,
        torch.float32,
        precision,
    )
    build = build_model({"name": model}, shape)
    engine = make_engine(build, shape.sample, settings, path=PLAIN.get(path, path))
    if path in PLAIN:
        assert isinstance(engine, StackedEngine)
        engine.convolutions = nullcontext
    start = torch.arange(rows, device=device) % 40 * OWNED
    samples = Samples(pool, torch.arange(4096, device=device), start, torch.full_like(start, OWNED))
    population = Population(rows, (1,), engine, LocalWork(batch, STEPS, None, 0.01))
    rates = torch.full((rows,), 0.01)
    return Nodes(population, torch.arange(rows), samples, samples, samples, rates)


def step_time(nodes: Nodes, repeat: int = 7) -> float:
    """Milliseconds of one local step of all rows."""
    params = nodes.initial_params()
    nodes.train(params, 0)
    times = []
    for t in range(repeat):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        nodes.train(params, t)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / STEPS)
    return statistics.median(times)


def loop_time(model: str, batch: int, rows: int = 32, steps: int = 5) -> float:
    """Milliseconds of one local step of a plain loop over modules."""
    case = CASES[model]
    modules = [build_model({"name": model}, case.shape)().to(DEVICE) for _ in range(rows)]
    kind = torch.optim.Adam if case.optimizer == "adam" else torch.optim.SGD
    optimizer = [kind(m.parameters(), lr=0.01) for m in modules]
    loss = objectives.build(case.objective).losses
    x = torch.randn(batch, *case.shape.sample, device=DEVICE)
    y = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for module, rule in zip(modules, optimizer, strict=True):
            rule.zero_grad()
            loss(module(x), x, y).mean().backward()
            rule.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 1024])
    parser.add_argument("--models", nargs="+", default=["lenet", "lenet5", "resnet8"])
    parser.add_argument("--paths", nargs="+", default=["fused", "stacked"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--apart", action="store_true", help="SGD in a pass of its own")
    options = parser.parse_args()
    network.STEP_INSIDE = not options.apart
    warnings.simplefilter("ignore")
    measured = []
    print(f"{'model':<12}{'rows':>6} {'path':<10}{'ms a step':>10}{'loop / ours':>12}")
    for model in options.models:
        loop = loop_time(model, options.batch)
        print(f"{model:<12}{32:>6} {'loop':<10}{loop:>10.3f}{1:>12.1f}", flush=True)
        for rows in options.rows:
            for path in options.paths:
                torch.cuda.empty_cache()
                nodes = make_nodes(model, rows, path, options.precision, options.batch)
                ours = step_time(nodes)
                ratio = loop * rows / 32 / ours
                print(f"{model:<12}{rows:>6} {path:<10}{ours:>10.3f}{ratio:>12.1f}", flush=True)
                measured.append({"model": model, "rows": rows, "path": path, "ms": ours})
    machine = torch.cuda.get_device_name()
    about = {
        "benchmark": "gpu_step",
        "machine": machine,
        "batch": options.batch,
        "apart": options.apart,
    }
    print(json.dumps({**about, "measured": measured}))


if __name__ == "__main__":
    main()
