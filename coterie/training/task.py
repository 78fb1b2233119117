"""A module and its objective, seen as functions of parameters by name."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from coterie.core.params import Column, Layout, flat
from coterie.errors import InputError
from coterie.training.objectives import Objective

Named = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """What is trained: a template module (its values are never used), its layout and objective."""

    module: nn.Module
    layout: Layout
    objective: Objective
    classes: int  # 0: not a classification

    def part(self, columns: slice | None) -> list[Column]:
        """The trained columns within a part (None: of the whole model)."""
        first, last = (0, self.layout.size) if columns is None else (columns.start, columns.stop)
        return [c for c in self.layout.columns if c.trained and first <= c.start and c.stop <= last]

    def moving_buffers(self, columns: slice | None) -> list[str]:
        """The names of the buffers within a part: they move with the layers that train."""
        first, last = (0, self.layout.size) if columns is None else (columns.start, columns.stop)
        return [
            c.name
            for c in self.layout.columns
            if not c.trained and first <= c.start and c.stop <= last
        ]

    def template(self) -> nn.Module:
        """A private copy of the module: functional calls swap tensors inside it."""
        module = copy.deepcopy(self.module)
        for layer in module.modules():
            if isinstance(layer, _BatchNorm):
                layer.num_batches_tracked = None  # no column, and no state outside the rows
        return module

    def loss(self, outputs: Tensor | tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of a batch; a module that trains may add losses of its own: [B]."""
        if isinstance(outputs, tuple):
            outputs, own = outputs
            return self.objective.losses(outputs, x, y).mean() + own.mean()
        return self.objective.losses(outputs, x, y).mean()

    def batch_loss(self, module: nn.Module) -> Callable[..., tuple[Tensor, Named]]:
        """f(trained, rest, inputs, targets) -> mean loss of the batch, and the new buffers."""
        buffers = [c.name for c in self.layout.columns if not c.trained]

        def loss(trained: Named, rest: Named, x: Tensor, y: Tensor) -> tuple[Tensor, Named]:
            fresh = {k: v.clone() if k in buffers else v for k, v in rest.items()}
            outputs = functional_call(module, {**trained, **fresh}, (x,))
            value = self.loss(outputs, x, y)
            return value, {name: fresh[name] for name in buffers}

        return loss


def check_module(module: nn.Module) -> None:
    """Refuse layers whose state or randomness would live outside the rows."""
    for name, layer in module.named_modules():
        if isinstance(layer, _DropoutNd) and layer.p:
            raise InputError(
                f"layer {name!r} is a dropout with p={layer.p}: it draws from a global generator, "
                "so the same seed would not give the same run; use p=0 or remove it"
            )
        if isinstance(layer, nn.RReLU):
            raise InputError(
                f"layer {name!r} is an RReLU, which draws from a global generator; use LeakyReLU"
            )
        if isinstance(layer, _BatchNorm) and layer.momentum is None:
            raise InputError(
                f"layer {name!r} is a batch norm with momentum=None (cumulative averages), which "
                "cannot be mixed between nodes; give it a momentum, e.g. 0.1"
            )


_GENERATOR = threading.Lock()  # torch has one for all threads, and peers may share a process


def initial_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module built on the CPU under a generator seeded with `seed`."""
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def initial_rows(build: Callable[[], nn.Module], layout: Layout, seeds: list[int]) -> Tensor:
    """A freshly initialised model for each seed: [m, P], on the CPU."""
    rows = [flat(initial_module(build, seed), layout) for seed in seeds]
    return torch.stack(rows) if rows else torch.empty(0, layout.size)
