"""Small populations for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from coterie.core import Algorithm, LocalWork, Nodes, Population
from coterie.core.engine import Engine
from coterie.core.samples import Pool, Samples
from coterie.runtimes.lockstep import DirectExchange, Exchange, FrameExchange
from coterie.runtimes.simulate import simulation_of
from coterie.training import TrainingSettings, make_engine
from coterie.training.objectives import Classification, Objective
from coterie.training.optimizers import SGD, Optimizer

CPU = torch.device("cpu")
PATHS = ("loop", "stacked")
WORK = LocalWork(batch=4, steps=3, lr=0.1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny operations on two threads wait for each other where the cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def mlp() -> nn.Module:
    """Ten inputs, three classes; the last layer is the head."""
    return nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))


def normed() -> nn.Module:
    """With a BatchNorm, whose running mean and variance are buffer columns of the core."""
    return nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def make_pool(shape: Sequence[int] = (10,), classes: int = 3, size: int = 60) -> Pool:
    """Random samples; `classes` 0 gives two real targets a sample."""
    random = torch.Generator().manual_seed(5)
    targets = (
        torch.randint(classes, (size,), generator=random)
        if classes
        else torch.randn(size, 2, generator=random)
    )
    return Pool(torch.randn(size, *shape, generator=random), targets, (0.0,), (1.0,))


def segments(pool: Pool, counts: Sequence[int]) -> Samples:
    """Each row owns the next `counts[row]` samples of the pool, which it never shares."""
    count = torch.tensor(counts, dtype=torch.int64)
    return Samples(pool, torch.arange(len(pool.inputs)), torch.cumsum(count, 0) - count, count)


@dataclass(frozen=True)
class World:
    """What a small population is made of."""

    n: int = 5
    seeds: tuple[int, ...] = (1,)
    path: str = "stacked"
    dtype: torch.dtype = torch.float64
    build: Callable[[], nn.Module] = mlp
    shape: tuple[int, ...] = (10,)
    head: tuple[str, ...] | None = None
    objective: Objective = field(default_factory=Classification)
    optimizer: Optimizer = field(default_factory=SGD)
    classes: int = 3
    counts: tuple[int, ...] | None = None  # samples of each node; None: ten
    work: LocalWork = WORK
    common_start: bool = False

    def engine(self) -> Engine:
        """An engine of the wanted path."""
        settings = TrainingSettings(
            self.objective, self.optimizer, self.classes, self.work.batch, CPU, self.dtype
        )
        return make_engine(self.build, self.shape, settings, head=self.head, path=self.path)

    def nodes(self) -> Nodes:
        """All nodes of all replicas as one block."""
        counts = list(self.counts or [10] * self.n)
        pool = make_pool(self.shape, self.classes, max(sum(counts) + 1, 2)).to(CPU, self.dtype)
        data = segments(pool, counts)[torch.arange(self.n).repeat(len(self.seeds))]
        rows = self.n * len(self.seeds)
        population = Population(self.n, self.seeds, self.engine(), self.work, self.common_start)
        lr = torch.full((rows,), self.work.lr, dtype=torch.float64)
        return Nodes(population, torch.arange(rows), data, data, data, lr)


def split_into(nodes: Nodes, blocks: int) -> list[Nodes]:
    """The nodes as that many blocks of about the same size."""
    return [nodes[rows] for rows in torch.arange(len(nodes)).tensor_split(blocks)]


def simulate(
    algorithm: Algorithm, blocks: list[Nodes], exchange: Exchange, rounds: int = 3
) -> Tensor:
    """The personal models after some rounds: [m, P]."""
    simulation = simulation_of(algorithm, blocks, exchange)
    simulation.start()
    for t in range(rounds):
        simulation.round(t)
    simulation.finish(rounds)
    return torch.cat([models for _, models in simulation.personal()])


def ways_to_run(nodes: Nodes) -> list[tuple[list[Nodes], Exchange]]:
    """One block, three blocks, n blocks, and n blocks that exchange frames; of one replica."""
    direct = [(split_into(nodes, blocks), DirectExchange(nodes.n)) for blocks in (1, 3, nodes.n)]
    return [*direct, (split_into(nodes, nodes.n), FrameExchange(nodes.n))]
