"""The fast path on a GPU: chains of known layers through Triton kernels, whole rounds in CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from coterie.core.engine import Engine, Scores, Work
from coterie.core.params import Layout
from coterie.core.samples import Pool, Samples
from coterie.training.chain import Link
from coterie.training.network import Network
from coterie.training.stacked import StackedEngine, rows_of

UNROLLED = 16  # steps that go into one CUDA graph; longer calls replay graphs of one step
IMAGES = 16384  # rows x samples that are scored together

Visit = Callable[[slice, Tensor, Tensor, Tensor, Tensor], None]  # rows, logits, losses, ids, real


@dataclass(eq=False)
class FusedEngine(Engine):
    """Trains and scores classifiers that are chains of known layers."""

    generic: StackedEngine  # for what the kernels do not do
    chain: list[Link]
    precision: str
    chunk: int  # rows that train together
    trainers: dict[Any, _Trainer] = field(default_factory=dict)
    scorers: dict[Any, _Scorer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device, self.dtype = self.generic.device, self.generic.dtype

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """The columns of a row."""
        return self.generic.layout

    def initial(self, seeds: list[int]) -> Tensor:
        return self.generic.initial(seeds)

    def train(self, params: Tensor, work: Work) -> Tensor:
        if work.correction is not None or work.proximal:
            return self.generic.train(params, work)
        chunks = [slice(i, i + self.chunk) for i in range(0, len(params), self.chunk)]
        after = [self._train_chunk(params[rows], rows_of(work, rows)) for rows in chunks]
        return after[0] if len(after) == 1 else torch.cat(after) if after else params

    def _train_chunk(self, params: Tensor, work: Work) -> Tensor:
        steps = int(work.steps.max()) if len(work.steps) else 0
        if not steps:
            return params
        part = tuple(column.name for column in self.generic.task.part(work.part))
        unrolled = steps if steps <= UNROLLED else 1
        key = (len(params), work.batch, unrolled, part, id(work.samples.pool))
        if key not in self.trainers:
            network = self._network(work.samples.pool, len(params), work.batch)
            network.allow_training(set(part), self.generic.optimizer)
            self.trainers[key] = _Trainer(network, unrolled)
        return self.trainers[key].train(params, work, steps)

    def losses(self, params: Tensor, samples: Samples, ids: Tensor, real: Tensor) -> Tensor:
        total = params.new_zeros(len(params))

        def visit(rows: slice, logits: Tensor, losses: Tensor, now: Tensor, counts: Tensor) -> None:
            total[rows] += torch.where(counts, losses, 0).sum(1)

        self._sweep(params, samples.pool, ids, real, visit)
        return total / real.sum(1)

    def scores(self, params: Tensor, samples: Samples) -> Scores:
        ids, real = samples.all()
        classes = self.generic.task.classes
        total = params.new_zeros(len(params))
        confusion = torch.zeros(len(params), classes**2, dtype=torch.int64, device=self.device)

        def visit(rows: slice, logits: Tensor, losses: Tensor, now: Tensor, counts: Tensor) -> None:
            total[rows] += torch.where(counts, losses, 0).sum(1)
            cells = samples.pool.targets[now] * classes + logits.argmax(-1)
            confusion[rows].scatter_add_(1, cells, counts.long())

        self._sweep(params, samples.pool, ids, real, visit)
        return Scores(total / real.sum(1), confusion.view(len(params), classes, classes))

    def _sweep(self, params: Tensor, pool: Pool, ids: Tensor, real: Tensor, visit: Visit) -> None:
        """Show all samples to all rows, a batch at a time."""
        rows, count = ids.shape
        for first in range(0, rows, self.chunk):
            some = slice(first, first + self.chunk)
            here = len(params[some])
            batch = min(count, max(1, IMAGES // here))
            key = (here, batch, id(pool))
            if key not in self.scorers:
                self.scorers[key] = _Scorer(self._network(pool, here, batch))
            scorer = self.scorers[key]
            scorer.load(params[some])
            for start in range(0, count, batch):
                now = slice(start, start + batch)
                visit(some, *scorer.score(ids[some, now]), ids[some, now], real[some, now])

    def _network(self, pool: Pool, rows: int, batch: int) -> Network:
        return Network(self.chain, self.layout, pool, rows, batch, self.precision)


class _Trainer:
    """All local steps of a call of `train`, captured once and replayed."""

    def __init__(self, network: Network, unrolled: int) -> None:
        rows, batch = network.ids.shape
        device = network.flat.device
        self.network, self.unrolled = network, unrolled
        self.ids = torch.zeros(unrolled, rows, batch, dtype=torch.int64, device=device)
        self.lr = torch.zeros(unrolled, rows, device=device)
        self.number = torch.zeros((), device=device)
        self.steps = captured(self._steps)

    def _steps(self) -> None:
        for ids, lr in zip(self.ids, self.lr, strict=True):
            self.number.add_(1)
            self.network.step(ids, lr, self.number)

    def train(self, params: Tensor, work: Work, steps: int) -> Tensor:
        network, (rows, batch) = self.network, self.network.ids.shape
        network.flat.copy_(params)
        network.load()
        network.forget()
        self.number.zero_()
        order = work.order.view(rows, steps, batch).transpose(0, 1)
        moving = torch.arange(steps)[:, None] < work.steps
        lr = (work.lr * moving).to(self.lr)
        for start in range(0, steps, self.unrolled):
            self.ids.copy_(order[start : start + self.unrolled])
            self.lr.copy_(lr[start : start + self.unrolled])
            self.steps()
        network.store()
        return network.flat.clone()


class _Scorer:
    """A forward pass, captured once and replayed."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.forward = captured(network.forward)

    def load(self, params: Tensor) -> None:
        self.network.flat.copy_(params)
        self.network.load()

    def score(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and losses of samples [rows, up to batch]."""
        count = ids.shape[1]
        self.network.ids[:, :count] = ids
        self.forward()
        logits = self.network.logits[:, :count]
        targets = self.network.pool.targets[ids]
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none"
        )
        return logits, losses.view(ids.shape)


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """The same work as a CUDA graph; without a GPU (the kernels' interpreter) the work itself."""
    if not torch.cuda.is_available():
        return work
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
