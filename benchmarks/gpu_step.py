"""How long is one local step of many models on a GPU, beside a plain loop over modules?

    python benchmarks/gpu_step.py [--rows 32 1024] [--models lenet lenet5 resnet8] [--apart]

A step is forward, backward and SGD of every row on its own batch of 8. Times are medians of whole
calls of `train` (10 steps; drawing and reading the samples included) by CUDA events. The loop
trains one module after the other with torch.optim.SGD; for many rows its time is that
of 32 rows, scaled. Prints a table and JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings

import torch
import torch.nn.functional as F

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.training import TrainingSettings, make_engine, network, objectives, optimizers

BATCH, STEPS, OWNED = 8, 10, 100
SHAPES = {
    "lenet": Shape((3, 32, 32), 10),
    "lenet5": Shape((1, 28, 28), 10),
    "resnet8": Shape((3, 64, 64), 41),
}


def make_nodes(model: str, rows: int, path: str, precision: str) -> Nodes:
    device, shape = torch.device("cuda"), SHAPES[model]
    size = (4096, *shape.sample)
    images = torch.randint(0, 256, size, dtype=torch.uint8, device=device)
    labels = torch.randint(0, shape.outputs, (4096,), device=device)
    channels = shape.sample[0]
    pool = Pool(images, labels, (0.5,) * channels, (0.5,) * channels)
    settings = TrainingSettings(
        objectives.build("classification"),
        optimizers.build("sgd"),
        shape.outputs,
        BATCH,
        device,
        torch.float32,
        precision,
    )
    build = build_model({"name": model}, shape)
    engine = make_engine(build, shape.sample, settings, path=path)
    start = torch.arange(rows, device=device) % 40 * OWNED
    samples = Samples(pool, torch.arange(4096, device=device), start, torch.full_like(start, OWNED))
    population = Population(rows, (1,), engine, LocalWork(BATCH, STEPS, None, 0.01))
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


def loop_time(model: str, rows: int = 32, steps: int = 5) -> float:
    """Milliseconds of one local step of a plain loop over modules."""
    device, shape = torch.device("cuda"), SHAPES[model]
    modules = [build_model({"name": model}, shape)().to(device) for _ in range(rows)]
    optimizer = [torch.optim.SGD(m.parameters(), lr=0.01) for m in modules]
    x = torch.randn(BATCH, *shape.sample, device=device)
    y = torch.zeros(BATCH, dtype=torch.int64, device=device)
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for module, rule in zip(modules, optimizer, strict=True):
            rule.zero_grad()
            F.cross_entropy(module(x), y).backward()
            rule.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 1024])
    parser.add_argument("--models", nargs="+", default=list(SHAPES))
    parser.add_argument("--paths", nargs="+", default=["fused", "stacked"])
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--apart", action="store_true", help="SGD in a pass of its own")
    options = parser.parse_args()
    network.STEP_INSIDE = not options.apart
    warnings.simplefilter("ignore")
    measured = []
    print(f"{'model':<10}{'rows':>6} {'path':<10}{'ms a step':>10}{'loop / ours':>12}")
    for model in options.models:
        loop = loop_time(model)
        print(f"{model:<10}{32:>6} {'loop':<10}{loop:>10.3f}{1:>12.1f}", flush=True)
        for rows in options.rows:
            for path in options.paths:
                torch.cuda.empty_cache()
                nodes = make_nodes(model, rows, path, options.precision)
                ours = step_time(nodes)
                ratio = loop * rows / 32 / ours
                print(f"{model:<10}{rows:>6} {path:<10}{ours:>10.3f}{ratio:>12.1f}", flush=True)
                measured.append({"model": model, "rows": rows, "path": path, "ms": ours})
    machine = torch.cuda.get_device_name()
    about = {"benchmark": "gpu_step", "machine": machine, "apart": options.apart}
    print(json.dumps({**about, "measured": measured}))


if __name__ == "__main__":
    main()
