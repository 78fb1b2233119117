"""Does the time per node and step stay flat from 32 to 10,000 nodes, and memory as planned?

    python benchmarks/scale.py [--nodes 32 100 ...] [--rounds 3] [--device cuda]

LeNet on CIFAR-10 shapes, EL, 10 local steps of batch 8. Prints a table and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from coterie.algorithms import EpidemicLearning
from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from coterie.training import TrainingSettings, make_engine, objectives, optimizers

BATCH, STEPS, OWNED, TESTED = 8, 10, 100, 512
SHAPE = Shape((3, 32, 32), 10)


def make_nodes(count: int, device: torch.device) -> Nodes:
    images = torch.randint(0, 256, (10_000, *SHAPE.sample), dtype=torch.uint8, device=device)
    labels = torch.randint(0, SHAPE.outputs, (10_000,), device=device)
    pool = Pool(images, labels, (0.5,) * 3, (0.5,) * 3)
    settings = TrainingSettings(
        objectives.build("classification"),
        optimizers.build("sgd"),
        SHAPE.outputs,
        BATCH,
        device,
        torch.float32,
        "tf32" if device.type == "cuda" else "float32",
    )
    engine = make_engine(build_model({"name": "lenet"}, SHAPE), SHAPE.sample, settings)
    start = torch.arange(count, device=device) % 100 * OWNED
    samples = Samples(
        pool, torch.arange(10_000, device=device), start, torch.full_like(start, OWNED)
    )
    test = Samples(
        pool,
        torch.arange(10_000, device=device),
        torch.zeros_like(start),
        torch.full_like(start, TESTED),
    )
    population = Population(count, (1,), engine, LocalWork(BATCH, STEPS, None, 0.05), True)
    rates = torch.full((count,), 0.05)
    return Nodes(population, torch.arange(count), samples, samples, test, rates)


def measure(count: int, rounds: int, device: torch.device) -> dict[str, float]:
    """Microseconds per node and step, GiB at the peak, and GiB as planned."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    nodes = make_nodes(count, device)
    base = torch.cuda.memory_allocated() if cuda else 0
    simulation = Simulation(EpidemicLearning(), [nodes], DirectExchange(count))
    simulation.start()
    for t in range(3):  # captures, and lets the allocator find its size
        simulation.round(t)
    if cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    for t in range(3, rounds + 3):
        simulation.round(t)
    if cuda:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - started) / rounds
    nodes.test(simulation.states[0].params)
    peak = (torch.cuda.max_memory_allocated() - base) / 2**30 if cuda else float("nan")
    planned = nodes.population.engine.memory(count) / 2**30
    return {"us": 1e6 * seconds / count / STEPS, "gib": peak, "planned": planned, "round": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[32, 100, 320, 1000, 3200, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    print(f"{'nodes':>7}{'us a node-step':>16}{'s a round':>11}{'GiB':>8}{'planned':>9}")
    rows = []
    for count in options.nodes:
        row = {"nodes": count, **measure(count, options.rounds, device)}
        rows.append(row)
        print(
            f"{count:>7}{row['us']:>16.2f}{row['round']:>11.3f}{row['gib']:>8.2f}"
            f"{row['planned']:>9.2f}",
            flush=True,
        )
    machine = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(json.dumps({"benchmark": "scale", "machine": machine, "rows": rows}))


if __name__ == "__main__":
    main()
