"""Does the time per node and step stay flat from 32 to 10,000 nodes, and memory as planned?

    python benchmarks/scale.py [--nodes 32 100 ...] [--rounds 3] [--device cuda] [--kernels]

LeNet on CIFAR-10 shapes, EL, 10 local steps of batch 8. Prints a table and one line of JSON.
`train` is the GPU's time for the local steps alone, `host` the time the host needs to ask for
a round: where it is close to a round's, the GPU waits for the host. With --kernels also every
kernel of a step: tile sizes, waves and, on a GPU, microseconds (see compile_kernels.py).
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
from coterie.runtimes.ahead import drawing_ahead
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
    with drawing_ahead(nodes.population, rounds + 3):
        for t in range(3):  # captures, and lets the allocator find its size
            simulation.round(t)
        wait(cuda)
        started = time.perf_counter()
        for t in range(3, rounds + 3):
            simulation.round(t)
        asked = (time.perf_counter() - started) / rounds
        wait(cuda)
        seconds = (time.perf_counter() - started) / rounds
    params = simulation.states[0].params
    train = train_seconds(nodes, params, rounds) if cuda else float("nan")
    nodes.test(params)
    peak = (torch.cuda.max_memory_allocated() - base) / 2**30 if cuda else float("nan")
    planned = nodes.population.engine.memory(count) / 2**30
    us = 1e6 * seconds / count / STEPS
    times = {"us": us, "round": seconds, "train": train, "host": asked}
    return {**times, "gib": peak, "planned": planned}


def wait(cuda: bool) -> None:
    """Until the GPU has done all that it was asked for."""
    if cuda:
        torch.cuda.synchronize()


def train_seconds(nodes: Nodes, params: torch.Tensor, repeat: int) -> float:
    """The GPU's time for the local steps of one round."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for t in range(repeat):
        nodes.train(params, t)
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / 1000 / repeat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[32, 100, 320, 1000, 3200, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    print(f"{'nodes':>7}{'us a node-step':>16}{'s a round':>11}{'train':>8}{'host':>8}", end="")
    print(f"{'GiB':>8}{'planned':>9}")
    rows = []
    for count in options.nodes:
        row = {"nodes": count, **measure(count, options.rounds, device)}
        rows.append(row)
        print(
            f"{count:>7}{row['us']:>16.2f}{row['round']:>11.3f}{row['train']:>8.3f}"
            f"{row['host']:>8.3f}{row['gib']:>8.2f}{row['planned']:>9.2f}",
            flush=True,
        )
    if options.kernels:
        from compile_kernels import print_table

        for count in options.nodes:
            print_table("lenet", count, device.type == "cuda")
    machine = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(json.dumps({"benchmark": "scale", "machine": machine, "rows": rows}))


if __name__ == "__main__":
    main()
