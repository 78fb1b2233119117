"""How long is a round of W32 (32 nodes, LeNet, batch 8, 10 local steps) beside a plain loop?

    python benchmarks/round_speed.py [--device cpu|cuda] [--repeat 5]

The baseline is the loop a careful person writes: one module and one torch.optim.SGD a node, trained
one after the other on CIFAR-10 shapes, then averaged along the same graph. On a CPU it runs as one
process a core with one thread each, and as one process with all threads; the better one counts. The
variants take turns, so that a busy moment hits all alike. Prints a table, the ratio and JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
import torch.nn.functional as F
from torch import nn

from coterie.algorithms import EpidemicLearning, Facade
from coterie.core import Algorithm, LocalWork, Nodes, Population, regular
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from coterie.training import TrainingSettings, make_engine, objectives, optimizers

NODES, BATCH, STEPS, OWNED, LR = 32, 8, 10, 1406, 0.05
SHAPE = Shape((3, 32, 32), 10)


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(
        0, 256, (NODES * OWNED, *SHAPE.sample), dtype=torch.uint8, generator=generator
    )
    return images, torch.randint(0, SHAPE.outputs, (NODES * OWNED,), generator=generator)


def coterie_rounds(algorithm: Algorithm, device: torch.device) -> Callable[[int], None]:
    """A function that plays round t."""
    images, labels = make_data()
    pool = Pool(images, labels, (0.5,) * 3, (0.5,) * 3).to(device, torch.float32)
    settings = TrainingSettings(
        objectives.build("classification"),
        optimizers.build("sgd"),
        SHAPE.outputs,
        BATCH,
        device,
        torch.float32,
        precision="tf32" if device.type == "cuda" else "float32",
    )
    engine = make_engine(build_model({"name": "lenet"}, SHAPE), SHAPE.sample, settings)
    samples = Samples(
        pool,
        torch.arange(NODES * OWNED, device=device),
        torch.arange(NODES, device=device) * OWNED,
        torch.full((NODES,), OWNED, device=device),
    )
    population = Population(NODES, (1,), engine, LocalWork(BATCH, STEPS, None, LR))
    rates = torch.full((NODES,), LR)
    nodes = Nodes(population, torch.arange(NODES), samples, samples, samples, rates)
    simulation = Simulation(algorithm, [nodes], DirectExchange(NODES))
    simulation.start()
    return simulation.round


class PlainLoop:
    """A module and an optimizer for each of some nodes."""

    def __init__(self, nodes: range, device: torch.device) -> None:
        images, labels = make_data()
        self.images, self.labels = images.to(device), labels.to(device)
        self.nodes, self.device = nodes, device
        self.modules = [build_model({"name": "lenet"}, SHAPE)().to(device) for _ in nodes]

    def train(self, t: int) -> None:
        generator = torch.Generator().manual_seed(t)
        for node, module in zip(self.nodes, self.modules, strict=True):
            optimizer = torch.optim.SGD(module.parameters(), lr=LR)
            order = torch.randperm(OWNED, generator=generator) + node * OWNED
            for step in range(STEPS):
                ids = order[step * BATCH : (step + 1) * BATCH].to(self.device)
                x = self.images[ids].float().div(255).sub(0.5).div(0.5)
                optimizer.zero_grad()
                F.cross_entropy(module(x), self.labels[ids]).backward()
                optimizer.step()

    def rows(self) -> torch.Tensor:
        flat = nn.utils.parameters_to_vector
        return torch.stack([flat(module.parameters()).detach() for module in self.modules])

    def load(self, rows: torch.Tensor) -> None:
        for module, row in zip(self.modules, rows, strict=True):
            nn.utils.vector_to_parameters(row, module.parameters())


def average(rows: torch.Tensor, t: int) -> torch.Tensor:
    """The mean of each row and its 4 neighbors of round t."""
    edges = torch.from_numpy(regular(4).edges(NODES, 1, t))
    total = rows.clone().index_add_(0, edges[1].to(rows.device), rows[edges[0].to(rows.device)])
    return total / 5


def one_process(device: torch.device) -> Callable[[int], None]:
    loop = PlainLoop(range(NODES), device)

    def play(t: int) -> None:
        loop.train(t)
        loop.load(average(loop.rows(), t))

    return play


def _serve(pipe: Connection, nodes: range) -> None:
    torch.set_num_threads(1)
    loop = PlainLoop(nodes, torch.device("cpu"))
    with contextlib.suppress(EOFError):  # the parent is done
        while True:
            loop.train(pipe.recv())
            pipe.send(loop.rows())
            loop.load(pipe.recv())


def several_processes(count: int) -> Callable[[int], None]:
    context = multiprocessing.get_context("spawn")
    pipes = []
    for worker in range(count):
        mine, theirs = context.Pipe()
        nodes = range(worker * NODES // count, (worker + 1) * NODES // count)
        context.Process(target=_serve, args=(theirs, nodes), daemon=True).start()
        pipes.append(mine)

    def play(t: int) -> None:
        for pipe in pipes:
            pipe.send(t)
        rows = average(torch.cat([pipe.recv() for pipe in pipes]), t)
        for pipe, part in zip(pipes, rows.chunk(count), strict=True):
            pipe.send(part)

    return play


def medians(
    plays: dict[str, Callable[[int], None]], repeat: int, device: torch.device
) -> dict[str, float]:
    """The median time of a round of each, after two rounds of warm-up, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in plays}
    for t in range(repeat + 2):
        for name, play in plays.items():
            started = time.perf_counter()
            play(t)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    device = torch.device(options.device)
    cores = os.cpu_count() or 1
    loops = {f"plain loop, 1 process x {cores} threads": one_process(device)}
    if device.type == "cpu":
        loops[f"plain loop, {cores} processes x 1 thread"] = several_processes(cores)
    ours = {
        "coterie, epidemic": coterie_rounds(EpidemicLearning(degree=4), device),
        "coterie, facade k=2": coterie_rounds(Facade(heads=2, degree=4, warmup=0), device),
    }
    measured = medians({**loops, **ours}, options.repeat, device)
    for name, value in measured.items():
        print(f"{name:<40} {value:8.4f} s a round")
    best = min(measured[name] for name in loops)
    ratio = measured["coterie, epidemic"] / best
    print(f"coterie / best loop = {ratio:.3f}   (loop / coterie = {1 / ratio:.1f})")
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"{cores} CPU cores"
    print(json.dumps({"benchmark": "round_speed", "machine": machine, "ratio": ratio, **measured}))


if __name__ == "__main__":
    main()
