"""From which size of convolutions on is it faster on this CPU to train row after row than stacked?

    python benchmarks/engine_choice.py

Milliseconds per row and step for both engines, by the multiplications of the convolutions a sample;
the limit that `training/engine.py` uses is LOOP_ABOVE. Prints a table and one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import time

import torch

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.training import TrainingSettings, make_engine, objectives, optimizers
from coterie.training.engine import LOOP_ABOVE

BATCH, STEPS, OWNED = 8, 10, 100
CASES = [
    ("mlp", (1, 28, 28), 32, 0),
    ("small-cnn", (1, 8, 8), 48, 82_944),
    ("lenet5", (1, 28, 28), 16, 357_600),
    ("cnn", (1, 28, 28), 16, 654_912),
    ("cnn", (3, 32, 32), 16, 4_667_616),
    ("lenet", (3, 32, 32), 32, 12_288_000),
]


def step_time(model: str, sample: tuple[int, int, int], rows: int, path: str) -> float:
    """Milliseconds per row and step."""
    images = torch.randint(0, 256, (4000, *sample), dtype=torch.uint8)
    pool = Pool(images, torch.arange(4000) % 10, (0.5,) * sample[0], (0.5,) * sample[0])
    settings = TrainingSettings(
        objectives.build("classification"),
        optimizers.build("sgd"),
        10,
        BATCH,
        torch.device("cpu"),
        torch.float32,
    )
    engine = make_engine(
        build_model({"name": model}, Shape(sample, 10)), sample, settings, path=path
    )
    start = torch.arange(rows) % 40 * OWNED
    samples = Samples(pool, torch.arange(4000), start, torch.full_like(start, OWNED))
    population = Population(rows, (1,), engine, LocalWork(BATCH, STEPS, None, 0.05))
    rates = torch.full((rows,), 0.05)
    nodes = Nodes(population, torch.arange(rows), samples, samples, samples, rates)
    params = nodes.initial_params()
    times = []
    for t in range(4):
        started = time.perf_counter()
        nodes.train(params, t)
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times[1:]) / rows / STEPS


def main() -> None:
    measured = []
    print(f"{'model':<10}{'sample':<14}{'multiplications':>16}{'loop':>8}{'stacked':>9}  chosen")
    for model, sample, rows, work in CASES:
        loop, stacked = (step_time(model, sample, rows, path) for path in ("loop", "stacked"))
        chosen = "loop" if work > LOOP_ABOVE else "stacked"
        size = "x".join(map(str, sample))
        print(f"{model:<10}{size:<14}{work:>16,}{loop:>8.2f}{stacked:>9.2f}  {chosen}", flush=True)
        measured.append({"model": model, "work": work, "loop": loop, "stacked": stacked})
    machine = f"{os.cpu_count()} CPU cores"
    print(json.dumps({"benchmark": "engine_choice", "machine": machine, "measured": measured}))


if __name__ == "__main__":
    main()
