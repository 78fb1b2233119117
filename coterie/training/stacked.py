"""The generic path for many rows at once: `vmap(grad)`, on a GPU in a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from coterie.core.engine import Engine, Scores, Work, rows_memory
from coterie.core.params import Layout
from coterie.core.samples import Pool, Samples
from coterie.core.transfer import to_device
from coterie.training.buckets import Sizes, padded, padded_work
from coterie.training.optimizers import Optimizer
from coterie.training.task import Named, Task, initial_rows


@dataclass(eq=False)
class StackedEngine(Engine):
    """Trains all rows of a chunk in each operation."""

    task: Task
    optimizer: Optimizer
    build: Callable[[], nn.Module]
    device: torch.device
    dtype: torch.dtype
    chunk: int  # rows that train together
    samples_at_once: int  # rows x samples that are scored together
    row_bytes: int  # memory of one row while it trains
    sample_shape: tuple[int, ...]
    convolutions: Callable[[], AbstractContextManager[Any]] = nullcontext  # how they are computed
    captured: dict[Any, _Steps] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)

    def __post_init__(self) -> None:
        self.learner = self.task.template().to(self.device, self.dtype).train()
        self.judge = self.task.template().to(self.device, self.dtype).eval()

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """The columns of a row."""
        return self.task.layout

    def memory(self, rows: int) -> int:
        return min(rows, self.chunk) * self.row_bytes + rows_memory(self.layout, rows)

    def expect(self, rows: int) -> None:
        self.sizes.expect(rows)

    def release(self) -> None:
        self.captured.clear()

    def initial(self, seeds: list[int]) -> Tensor:
        return initial_rows(self.build, self.layout, seeds).to(self.device, self.dtype)

    def train(self, params: Tensor, work: Work) -> Tensor:
        kept = self.device.type == "cuda" and not work.once
        fitted = self._train_fitted if kept else self._train_chunk
        chunks = self._chunks(params, self._most(work))
        after = [fitted(params[rows], rows_of(work, rows)) for rows in chunks]
        return torch.cat(after) if after else params

    def losses(self, params: Tensor, samples: Samples, ids: Tensor, real: Tensor) -> Tensor:
        means = [
            self._losses_chunk(params[rows], samples.pool, ids[rows], real[rows])
            for rows in self._chunks(params)
        ]
        return torch.cat(means) if means else params.new_empty(0)

    def gradients(self, params: Tensor, samples: Samples, ids: Tensor) -> Tensor:
        found = [
            self._gradients_chunk(params[rows], samples.pool, ids[rows])
            for rows in self._chunks(params)
        ]
        return torch.cat(found) if found else params

    def scores(self, params: Tensor, samples: Samples) -> Scores:
        classes = self.task.classes if self.task.objective.classifies else 0
        loss = params.new_full((len(params),), torch.nan)
        confusion = torch.zeros(
            len(params), classes, classes, dtype=torch.int64, device=self.device
        )
        for rows, ids in samples.segments:
            for some in rows.split(self.chunk):
                loss[some], counts = self._score_chunk(params[some], samples.pool, ids, classes)
                if classes:
                    confusion[some] = counts
        return Scores(loss, confusion if classes else None)

    def _batch(self, rows: int) -> int:
        return max(1, self.samples_at_once // max(rows, 1))

    def _most(self, work: Work) -> int:
        """How many rows train together with batches of this size."""
        return min(self.chunk, max(self.samples_at_once // max(work.batch, 1), 1))

    def _chunks(self, params: Tensor, most: int | None = None) -> list[slice]:
        size = most or self.chunk
        return [slice(i, i + size) for i in range(0, len(params), size)]

    def _train_fitted(self, params: Tensor, work: Work) -> Tensor:
        """Train a chunk with as many rows as one capture has."""
        size = self.sizes.of(len(params), self._most(work))
        return self._train_chunk(padded(params, size), padded_work(work, size))[: len(params)]

    def _train_chunk(self, params: Tensor, work: Work) -> Tensor:
        steps = int(work.steps.max()) if len(work.steps) else 0
        if not steps:
            return params
        program = self._program(params, work)
        program.begin(params, work)
        ragged = bool((work.steps != steps).any())
        for step in range(steps):
            if ragged or not step:
                program.pace(work.lr, work.steps > step)
            program.advance(work.order[:, step * work.batch : (step + 1) * work.batch])
        return program.rows.clone()

    def _program(self, params: Tensor, work: Work) -> _Steps:
        """The steps of this kind of work; on a GPU captured once and replayed."""
        if self.device.type != "cuda" or work.once:
            return _Steps(self, len(params), work)
        part = None if work.part is None else (work.part.start, work.part.stop)
        pulls = (work.correction is not None, work.proximal)
        extras = (work.mask is not None, *pulls, id(work.samples.pool))
        key = (len(params), work.batch, part, *extras)
        if key not in self.captured:
            self.captured[key] = _Steps(self, len(params), work)
            self.captured[key].begin(params, work)
            self._capture(self.captured[key])
        return self.captured[key]

    def _capture(self, steps: _Steps) -> None:
        """Capture, where the module allows it."""
        try:
            steps.capture()
        except RuntimeError as reason:
            warnings.warn(
                f"the model cannot be captured in a CUDA graph, so it trains slower: {reason}",
                stacklevel=2,
            )

    def _losses_chunk(self, params: Tensor, pool: Pool, ids: Tensor, real: Tensor) -> Tensor:
        named = self.layout.unflatten(params)
        total = params.new_zeros(len(params))
        for some in torch.arange(ids.shape[1], device=self.device).split(self._batch(len(params))):
            x, y = pool.read(ids[:, some], self.dtype), pool.targets[ids[:, some]]
            with torch.no_grad(), self.convolutions():
                losses = vmap(self._judge)(named, x, y)[0]
            total += torch.where(real[:, some], losses, 0).sum(1)
        return total / real.sum(1)

    def _gradients_chunk(self, params: Tensor, pool: Pool, ids: Tensor) -> Tensor:
        named = self.layout.unflatten(params)
        trained = {column.name: named[column.name] for column in self.task.part(None)}

        def loss(trained: Named, named: Named, x: Tensor, y: Tensor) -> Tensor:
            return self._judge({**named, **trained}, x, y)[0].mean()

        x, y = pool.read(ids, self.dtype), pool.targets[ids]
        with self.convolutions():
            found = vmap(grad(loss))(trained, named, x, y)
        nothing = {name: torch.zeros_like(named[name]) for name in named if name not in trained}
        return self.layout.flatten({**nothing, **found})

    def _score_chunk(
        self, params: Tensor, pool: Pool, ids: Tensor, classes: int
    ) -> tuple[Tensor, Tensor]:
        named = self.layout.unflatten(params)
        total = params.new_zeros(len(params))
        counts = torch.zeros(len(params), classes**2, dtype=torch.int64, device=self.device)
        for some in ids.split(self._batch(len(params))):
            x, y = pool.read(some, self.dtype), pool.targets[some]
            with torch.no_grad(), self.convolutions():
                losses, outputs = vmap(self._judge, in_dims=(0, None, None))(named, x, y)
            total += losses.sum(1)
            if classes:
                cells = y * classes + outputs.argmax(-1)
                counts.scatter_add_(1, cells, torch.ones_like(cells))
        return total / len(ids), counts.view(len(params), classes, classes)

    def _judge(self, named: Named, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        outputs = functional_call(self.judge, named, (x,))
        return self.task.objective.losses(outputs, x, y), outputs


class _Steps:
    """One local step of a chunk of rows over tensors that stay in place, fit to be captured."""

    def __init__(self, engine: StackedEngine, rows: int, work: Work) -> None:
        task, layout = engine.task, engine.task.layout
        self.engine = engine
        self.pool = work.samples.pool
        self.rows = torch.empty(rows, layout.size, device=engine.device, dtype=engine.dtype)
        self.lr = torch.empty(rows, device=engine.device, dtype=engine.dtype)
        self.moving = torch.zeros(rows, device=engine.device, dtype=torch.bool)
        self.buffers = task.moving_buffers(work.part)
        self.ids = torch.empty(rows, work.batch, device=engine.device, dtype=torch.int64)
        self.number = torch.empty((), device=engine.device, dtype=engine.dtype)
        self.correction = None if work.correction is None else torch.empty_like(self.rows)
        self.anchor = torch.empty_like(self.rows) if work.proximal else None
        self.proximal = work.proximal
        self.mask = None if work.mask is None else torch.empty_like(self.rows, dtype=torch.bool)
        self.before = None if work.mask is None else torch.empty_like(self.rows)
        named = layout.unflatten(self.rows)
        names = [column.name for column in task.part(work.part)]
        self.trained = {name: named[name] for name in names}
        self.rest = {name: named[name] for name in named if name not in self.trained}
        self.memory = {n: engine.optimizer.memory(p) for n, p in self.trained.items()}
        self.gradient = vmap(grad(task.batch_loss(engine.learner), has_aux=True))
        self.graph: torch.cuda.CUDAGraph | None = None

    def begin(self, params: Tensor, work: Work) -> None:
        """Set everything that lasts for one call of `train`."""
        self.rows.copy_(params)
        self.number.zero_()
        for slots in self.memory.values():
            for slot in slots:
                slot.zero_()
        if self.correction is not None and work.correction is not None:
            self.correction.copy_(work.correction)
        if self.anchor is not None:
            self.anchor.copy_(params if work.anchor is None else work.anchor)
        if self.mask is not None and self.before is not None and work.mask is not None:
            self.mask.copy_(work.mask)
            self.before.copy_(params)

    def pace(self, lr: Tensor, moving: Tensor) -> None:
        """Set the learning rate of every row, and which rows still have steps to do."""
        self.lr.copy_(to_device(lr * moving, self.lr.device))
        self.moving.copy_(to_device(moving, self.moving.device))

    def advance(self, ids: Tensor) -> None:
        """One step of every row on its batch."""
        self.ids.copy_(ids)
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()

    def capture(self) -> None:
        """Record one step as a CUDA graph."""
        self.lr.zero_()
        self.ids.copy_(torch.zeros_like(self.ids))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.graph = graph

    def _step(self) -> None:
        self.number.add_(1)
        x = self.pool.read(self.ids, self.engine.dtype)
        y = self.pool.targets[self.ids]
        with self.engine.convolutions():
            gradients, buffers = self.gradient(self.trained, self.rest, x, y)
        anchors = {} if self.anchor is None else self.engine.layout.unflatten(self.anchor)
        pulls = {} if self.correction is None else self.engine.layout.unflatten(self.correction)
        for name, leaf in self.trained.items():
            gradient = gradients[name]
            if pulls:
                gradient = gradient + pulls[name]
            if anchors:
                gradient = gradient + self.proximal * (leaf - anchors[name])
            lr = self.lr.view(-1, *[1] * (leaf.ndim - 1))
            self.engine.optimizer.step(leaf, gradient, self.memory[name], self.number, lr)
        for name in self.buffers:
            moving = self.moving.view(-1, *[1] * (buffers[name].ndim - 1))
            self.rest[name].copy_(torch.where(moving, buffers[name], self.rest[name]))
        if self.mask is not None and self.before is not None:
            self.rows.copy_(torch.where(self.mask, self.rows, self.before))


def rows_of(work: Work, rows: slice) -> Work:
    """The part of a call that concerns some rows."""
    return Work(
        samples=work.samples,
        order=work.order[rows],
        steps=work.steps[rows],
        batch=work.batch,
        lr=work.lr[rows],
        part=work.part,
        mask=None if work.mask is None else work.mask[rows],
        correction=None if work.correction is None else work.correction[rows],
        proximal=work.proximal,
        anchor=None if work.anchor is None else work.anchor[rows],
        once=work.once,
    )
