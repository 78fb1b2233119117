"""The fast path on a GPU: chains of known layers through Triton kernels, in CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from coterie.core.engine import Engine, Scores, Work, rows_memory
from coterie.core.params import Layout
from coterie.core.samples import Pool, Samples
from coterie.core.transfer import to_device
from coterie.training.buckets import Sizes, bucket, even, padded, padded_work
from coterie.training.chain import Link
from coterie.training.goals import Goal
from coterie.training.network import Network
from coterie.training.stacked import StackedEngine, rows_of

UNROLLED = 16  # steps that go into one CUDA graph; longer calls replay graphs of one step
IMAGES = 16384  # rows x samples that are scored together

Seen = tuple[slice, slice, "_Scorer"]  # rows, samples, and the scorer that has seen them


@dataclass(eq=False)
class FusedEngine(Engine):
    """Trains and scores models that are chains of known layers."""

    generic: StackedEngine  # for what the kernels do not do
    chain: list[Link]
    goal: Goal
    precision: str
    batch: int  # samples of one step
    chunk: int  # rows that train together
    trainers: dict[Any, _Trainer] = field(default_factory=dict)
    scorers: dict[Any, _Scorer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device, self.dtype = self.generic.device, self.generic.dtype
        self.sizes: Sizes = self.generic.sizes
        split = self.layout.split
        at = {column.name: column.start for column in self.layout.columns}
        starts = [(place, at[name]) for place, link in enumerate(self.chain) for name in link.names]
        # the first link with weights of the head, where the head is the chain's end
        whole = split is not None and starts == sorted(starts, key=lambda pair: pair[1])
        self.head = min((place for place, start in starts if start >= (split or 0)), default=0)
        self.head = self.head if whole else 0

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """The columns of a row."""
        return self.generic.layout

    def expect(self, rows: int) -> None:
        self.sizes.expect(rows)

    def release(self) -> None:
        self.generic.release()
        self.trainers.clear()
        self.scorers.clear()

    def initial(self, seeds: list[int]) -> Tensor:
        return self.generic.initial(seeds)

    def train(self, params: Tensor, work: Work) -> Tensor:
        if work.mask is not None or work.once:
            return self.generic.train(params, work)
        if len(params) <= self.chunk:
            size = self.sizes.of(len(params), self.chunk)
            after = self._train_chunk(padded(params, size), padded_work(work, size))
            return after[: len(params)]
        after = torch.empty_like(params)
        for rows in self.sizes.chunks(len(params), self.chunk):
            after[rows] = self._train_chunk(params[rows], rows_of(work, rows))
        return after

    def _train_chunk(self, params: Tensor, work: Work) -> Tensor:
        steps = int(work.steps.max()) if len(work.steps) else 0
        if not steps:
            return params
        part = tuple(column.name for column in self.generic.task.part(work.part))
        unrolled = steps if steps <= UNROLLED else 1
        pulled = work.correction is not None or work.proximal > 0
        pulls = (pulled, work.proximal)
        key = (len(params), work.batch, unrolled, part, *pulls, id(work.samples.pool))
        if key not in self.trainers:
            network = self._network(work.samples.pool, len(params), work.batch)
            network.allow_training(set(part), self.generic.optimizer, *pulls)
            self.trainers[key] = _Trainer(network, unrolled)
        return self.trainers[key].train(params, work, steps)

    def _fitted(self, *of_rows: Tensor) -> list[Tensor]:
        """The tensors with as many rows as one capture has."""
        size = self.sizes.of(len(of_rows[0]), self.chunk)
        return [padded(rows, size) for rows in of_rows]

    def losses(self, params: Tensor, samples: Samples, ids: Tensor, real: Tensor) -> Tensor:
        asked = len(params)
        params, ids, real = self._fitted(params, ids, real)
        total = params.new_zeros(len(params))
        for rows, now, scorer in self._sweep(params, samples.pool, ids):
            losses = scorer.judge(ids[rows, now])[1]
            add = torch.where(real[rows, now], losses, 0).sum(1)
            total[rows] = add if now.start == 0 else total[rows] + add
        return (total / real.sum(1))[:asked]

    def gradients(self, params: Tensor, samples: Samples, ids: Tensor) -> Tensor:
        return self.generic.gradients(params, samples, ids)

    def head_losses(
        self, core: Tensor, heads: Tensor, samples: Samples, ids: Tensor, real: Tensor
    ) -> Tensor:
        if self.head == 0 or core.shape[1] != self.layout.split:
            return Engine.head_losses(self, core, heads, samples, ids, real)
        asked = len(core)
        core, heads, ids, real = self._fitted(core, heads, ids, real)
        total = core.new_zeros(heads.shape[:2])
        models = torch.cat([core, heads[:, 0]], dim=1)
        for rows, now, scorer in self._sweep(models, samples.pool, ids):
            for j in range(heads.shape[1]):
                scorer.network.flat[:, self.layout.head] = heads[rows, j]
                scorer.load_head()
                losses = scorer.judge(ids[rows, now])[1]
                add = torch.where(real[rows, now], losses, 0).sum(1)
                total[rows, j] = add if now.start == 0 else total[rows, j] + add
        return (total / real.sum(1, keepdim=True))[:asked]

    def scores(self, params: Tensor, samples: Samples) -> Scores:
        asked = len(params)
        params, ids, real = self._fitted(params, *samples.all())
        classes = self.generic.task.classes if self.generic.task.objective.classifies else 0
        total = params.new_zeros(len(params))
        confusion = torch.zeros(len(params), classes**2, dtype=torch.int64, device=self.device)
        for rows, now, scorer in self._sweep(params, samples.pool, ids):
            outputs, losses = scorer.judge(ids[rows, now])
            if now.start == 0:  # chunks of rows may overlap
                total[rows], confusion[rows] = 0, 0
            total[rows] += torch.where(real[rows, now], losses, 0).sum(1)
            if classes:
                cells = samples.pool.targets[ids[rows, now]] * classes + outputs.argmax(-1)
                confusion[rows].scatter_add_(1, cells, real[rows, now].long())
        counts = confusion.view(-1, classes, classes)[:asked] if classes else None
        return Scores((total / real.sum(1))[:asked], counts)

    def _sweep(self, params: Tensor, pool: Pool, ids: Tensor) -> Iterator[Seen]:
        """Show all samples to all rows, some rows and a batch at a time: rows, samples, scorer."""
        count = ids.shape[1]
        for rows in self.sizes.chunks(len(params), self.chunk):
            many = rows.stop - rows.start
            batch = max(1, min(bucket(count), IMAGES // many, self.countable))
            key = (many, batch, id(pool))
            if key not in self.scorers:
                self.scorers[key] = _Scorer(self._network(pool, many, batch), self.head)
            scorer = self.scorers[key]
            scorer.load(params[rows])
            for start in range(0, count, batch):
                now = slice(start, start + batch)
                scorer.see(ids[rows, now])
                yield rows, now, scorer

    def memory(self, rows: int) -> int:
        some, pool = even(rows, self.chunk), self._stand_in()
        trainer = self._network(pool, some, self.batch)
        trained = {column.name for column in self.generic.task.part(None)}
        trainer.allow_training(trained, self.generic.optimizer)
        scorer = self._network(pool, some, max(1, IMAGES // max(some, 1)))
        return trainer.bytes() + scorer.bytes() + rows_memory(self.layout, rows)

    @cached_property
    def countable(self) -> int:
        """Samples of one row whose values the kernels can count with 32 bits."""
        links = self._network(self._stand_in(), 1, 1).links
        return (2**31 - 1) // max(max(link.inputs.numel(), link.out.numel()) for link in links)

    def _stand_in(self) -> Pool:
        """A pool that takes no memory, to learn the sizes of a network."""
        shape = self.generic.sample_shape
        return Pool(
            torch.empty(1, *shape, dtype=torch.uint8, device="meta"),
            torch.empty(1, device="meta"),
            (0.5,) * shape[0],
            (0.5,) * shape[0],
        )

    def _network(self, pool: Pool, rows: int, batch: int) -> Network:
        return Network(self.chain, self.layout, pool, (rows, batch), self.precision, self.goal)


class _Trainer:
    """All local steps of a call of `train`, captured once and replayed."""

    def __init__(self, network: Network, unrolled: int) -> None:
        rows, batch = network.ids.shape
        device = network.flat.device
        self.network, self.unrolled = network, unrolled
        self.ids = torch.zeros(unrolled, rows, batch, dtype=torch.int64, device=device)
        self.lr = torch.zeros(unrolled, rows, device=device)
        self.number = torch.zeros((), device=device)
        self.paced: Tensor | None = None  # what is in `lr`
        self.begin, self.steps = captured(self._begin), captured(self._steps)
        self.end = captured(network.store)

    def _begin(self) -> None:
        self.network.load()
        self.network.load_pull()
        self.network.forget()
        self.number.zero_()

    def _steps(self) -> None:
        for ids, lr in zip(self.ids, self.lr, strict=True):
            self.number.add_(1)
            self.network.step(ids, lr, self.number)

    def train(self, params: Tensor, work: Work, steps: int) -> Tensor:
        """The rows after their steps; everything that varies by call is written before replay."""
        rows, batch = self.network.ids.shape
        self.network.flat.copy_(params)
        if self.network.pull is not None:
            self.network.pull.copy_(_pull(params, work))
        self.begin()
        order = work.order.view(rows, steps, batch).transpose(0, 1)
        pace = work.lr * (torch.arange(steps)[:, None] < work.steps)
        for start in range(0, steps, self.unrolled):
            self.ids.copy_(order[start : start + self.unrolled])
            self._pace(pace[start : start + self.unrolled])
            self.steps()
        self.end()
        return self.network.flat.clone()

    def _pace(self, lr: Tensor) -> None:
        if self.paced is None or not torch.equal(lr, self.paced):
            self.lr.copy_(to_device(lr, self.lr.device))
            self.paced = lr


def _pull(params: Tensor, work: Work) -> Tensor:
    """What is added to every gradient: the correction, and the end of the spring that is fixed."""
    if not work.proximal:
        assert work.correction is not None
        return work.correction
    fixed = -work.proximal * (params if work.anchor is None else work.anchor)
    return fixed if work.correction is None else work.correction + fixed


class _Scorer:
    """A forward pass in two parts, core and head, captured once and replayed."""

    def __init__(self, network: Network, head: int) -> None:
        self.network, self.first = network, head
        self.load_all, self.load_head = captured(network.load), captured(self._load_head)
        self.core, self.head = captured(self._core), captured(self._head)

    def _load_head(self) -> None:
        self.network.load(self.first)

    def _core(self) -> None:
        self.network.read(self.network.ids)
        self.network.pass_through(0, self.first)

    def _head(self) -> None:
        self.network.pass_through(self.first, len(self.network.links))

    def load(self, params: Tensor) -> None:
        """Take the models [rows, P]."""
        self.network.flat.copy_(params)
        self.load_all()

    def see(self, ids: Tensor) -> None:
        """Run the core on samples [rows, up to batch]."""
        self.network.ids[:, : ids.shape[1]] = ids
        self.core()

    def judge(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Run the head: outputs and losses of the samples seen."""
        self.head()
        return self.network.judge(ids)


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
