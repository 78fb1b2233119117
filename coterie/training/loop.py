"""The path for CPUs and convolutions: row after row through a real module, one thread per core.

A thread holds a module of its own (functional calls are not thread-safe) and runs single-threaded
operations on channels-last tensors: on two cores this beats operations with two threads each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch
from torch import Tensor, nn

from coterie.core.engine import Engine, Scores, Work, rows_memory
from coterie.core.params import Layout, flat
from coterie.core.samples import Samples
from coterie.training.optimizers import Optimizer
from coterie.training.task import Task, initial_rows

EVALUATION_BATCH = 256


@dataclass(eq=False)
class LoopEngine(Engine):
    """Trains row after row; rows are spread over threads."""

    task: Task
    optimizer: Optimizer
    build: Callable[[], nn.Module]
    device: torch.device
    dtype: torch.dtype
    modules: SimpleQueue[nn.Module] = field(default_factory=SimpleQueue)

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """The columns of a row."""
        return self.task.layout

    def memory(self, rows: int) -> int:
        return rows_memory(self.layout, rows)

    def initial(self, seeds: list[int]) -> Tensor:
        return initial_rows(self.build, self.layout, seeds).to(self.device, self.dtype)

    def train(self, params: Tensor, work: Work) -> Tensor:
        after = params.clone()

        def one(module: nn.Module, row: int) -> None:
            after[row] = self._train_row(module.train(), params[row], work, row)

        self._spread(one, len(params))
        return after

    def losses(self, params: Tensor, samples: Samples, ids: Tensor, real: Tensor) -> Tensor:
        means = params.new_full((len(params),), torch.nan)

        def one(module: nn.Module, row: int) -> None:
            mine = ids[row][real[row]]
            if len(mine):
                means[row] = self._forward(module, params[row], samples, mine)[0].mean()

        self._spread(one, len(params))
        return means

    def gradients(self, params: Tensor, samples: Samples, ids: Tensor) -> Tensor:
        found = torch.zeros_like(params)

        def one(module: nn.Module, row: int) -> None:
            leaves = self._load(module.eval(), params[row], None)
            x = self._channels_last(samples.pool.read(ids[row], self.dtype))
            loss = self.task.objective.losses(module(x), x, samples.pool.targets[ids[row]]).mean()
            gradients = torch.autograd.grad(
                loss, list(leaves.values()), allow_unused=True, materialize_grads=True
            )
            by_name = self.layout.unflatten(found[row])
            for name, gradient in zip(leaves, gradients, strict=True):
                by_name[name].copy_(gradient)

        self._spread(one, len(params))
        return found

    def scores(self, params: Tensor, samples: Samples) -> Scores:
        means = params.new_full((len(params),), torch.nan)
        classes = self.task.classes if self.task.objective.classifies else 0
        confusion = torch.zeros(len(params), classes, classes, dtype=torch.int64)

        def one(module: nn.Module, row: int) -> None:
            start, count = int(samples.start[row]), int(samples.count[row])
            mine = samples.index[start : start + count]
            if count:
                losses, outputs = self._forward(module, params[row], samples, mine)
                means[row] = losses.mean()
                if classes:
                    cell = samples.pool.targets[mine] * classes + outputs.argmax(1)
                    confusion[row] = torch.bincount(cell, minlength=classes**2).view(classes, -1)

        self._spread(one, len(params))
        return Scores(means, confusion if classes else None)

    def _train_row(self, module: nn.Module, row: Tensor, work: Work, number: int) -> Tensor:
        """The row after its steps of gradient descent."""
        steps, batch = int(work.steps[number]), work.batch
        if not steps or not self.task.part(work.part):
            return row
        leaves = self._load(module, row, work.part)
        pull = self._pull(row, work, number)
        memory = [self.optimizer.memory(leaf) for leaf in leaves.values()]
        mine = work.order[number, : steps * batch]
        inputs = self._channels_last(work.samples.pool.read(mine, self.dtype))
        targets = work.samples.pool.targets[mine]
        for step in range(steps):
            now = slice(step * batch, (step + 1) * batch)
            x, y = inputs[now], targets[now]
            loss = self.task.loss(module(x), x, y)
            gradients = torch.autograd.grad(
                loss, list(leaves.values()), allow_unused=True, materialize_grads=True
            )
            with torch.no_grad():
                count = torch.tensor(step + 1, dtype=self.dtype)
                for (name, leaf), gradient, slots in zip(
                    leaves.items(), gradients, memory, strict=True
                ):
                    gradient = pull.corrected(name, leaf, gradient)
                    self.optimizer.step(leaf, gradient, slots, count, work.lr[number])
                    pull.hold(name, leaf)
        after = flat(module, self.layout)
        if work.mask is not None:
            return torch.where(work.mask[number], after, row)
        if work.part is not None:  # running statistics of frozen layers stay
            kept = row.clone()
            kept[work.part] = after[work.part]
            return kept
        return after

    def _load(self, module: nn.Module, row: Tensor, columns: slice | None) -> dict[str, Tensor]:
        """Copy a row into the module; returns its tensors that train."""
        self._fill(module, row)
        part = {column.name for column in self.task.part(columns)}
        named = dict(module.named_parameters())
        for name, parameter in named.items():
            parameter.requires_grad_(name in part)
        return {name: named[name] for name in named if name in part}

    def _pull(self, row: Tensor, work: Work, number: int) -> _Pull:
        """What pulls at the tensors of a row."""
        correction = None if work.correction is None else work.correction[number]
        anchor = row if work.anchor is None else work.anchor[number]
        mask = {} if work.mask is None else self.layout.unflatten(work.mask[number])
        return _Pull(
            {} if correction is None else self.layout.unflatten(correction),
            self.layout.unflatten(anchor) if work.proximal else {},
            work.proximal,
            mask,
            self.layout.unflatten(row) if mask else {},
        )

    def _fill(self, module: nn.Module, row: Tensor) -> None:
        held = module.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, value in self.layout.unflatten(row).items():
                held[name].copy_(value)

    def _forward(
        self, module: nn.Module, row: Tensor, samples: Samples, ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses [k] and outputs [k, ...] of one model over sample numbers [k]."""
        self._fill(module, row)
        module.eval()
        losses, outputs = [], []
        with torch.no_grad():
            for now in ids.split(EVALUATION_BATCH):
                x = self._channels_last(samples.pool.read(now, self.dtype))
                out = module(x)
                losses.append(self.task.objective.losses(out, x, samples.pool.targets[now]))
                outputs.append(out)
        return torch.cat(losses), torch.cat(outputs)

    def _channels_last(self, inputs: Tensor) -> Tensor:
        if inputs.ndim == 4 and self.dtype == torch.float32:
            return inputs.contiguous(memory_format=torch.channels_last)
        return inputs

    def _spread(self, one: Callable[[nn.Module, int], None], rows: int) -> None:
        """Call `one` for every row, on as many threads as torch would use for one operation."""
        workers = min(torch.get_num_threads(), rows) if self.device.type == "cpu" else 1
        if workers <= 1:
            with self._module() as module:
                for row in range(rows):
                    one(module, row)
            return

        def share(worker: int) -> None:
            with self._module() as module:
                for row in range(worker, rows, workers):
                    one(module, row)

        with _single_threaded(), ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(share, worker) for worker in range(workers)]:
                done.result()

    @contextmanager
    def _module(self) -> Iterator[nn.Module]:
        module = self.task.template().to(self.device, self.dtype) if self.modules.empty() else None
        module = module or self.modules.get()
        if self.dtype == torch.float32:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            yield module
        finally:
            self.modules.put(module)


@dataclass(frozen=True)
class _Pull:
    """What is added to gradients: a correction, and a spring to an anchor; and what may move."""

    correction: dict[str, Tensor]
    anchor: dict[str, Tensor]
    strength: float
    mask: dict[str, Tensor]
    before: dict[str, Tensor]

    def corrected(self, name: str, leaf: Tensor, gradient: Tensor) -> Tensor:
        if self.correction:
            gradient = gradient + self.correction[name]
        if self.anchor:
            gradient = gradient + self.strength * (leaf - self.anchor[name])
        return gradient

    def hold(self, name: str, leaf: Tensor) -> None:
        """Put entries that may not change back to where they began."""
        if self.mask:
            leaf.copy_(torch.where(self.mask[name], leaf, self.before[name]))


@contextmanager
def _single_threaded() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
