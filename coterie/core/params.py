"""Flat models: a row of `P` columns per model, and the layout that names its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from coterie.errors import InputError


@dataclass(frozen=True)
class Column:
    """A named run of columns: one parameter or one buffer of the module."""

    name: str
    shape: tuple[int, ...]
    start: int
    trained: bool  # buffers are mixed like parameters but never touched by an optimizer

    @property
    def stop(self) -> int:
        """One past the last column."""
        return self.start + math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Which columns of a flat model hold what: first the core, then the head."""

    columns: tuple[Column, ...]
    split: int | None  # first column of the head; None: the model declares no head

    @property
    def size(self) -> int:
        """The number of columns P."""
        return self.columns[-1].stop if self.columns else 0

    @property
    def core(self) -> slice:
        """The columns that all heads share."""
        return slice(0, self._split())

    @property
    def head(self) -> slice:
        """The specialised columns."""
        return slice(self._split(), self.size)

    def _split(self) -> int:
        if self.split is None:
            raise InputError(
                "the model declares no head, which this algorithm needs; set `model.head` to the "
                "names of its last layers, e.g. head = ['fc'], or give the module a `head`"
            )
        return self.split

    def unflatten(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the rows by name: [..., P] -> name -> [..., *shape]."""
        lead = rows.shape[:-1]
        return {c.name: rows[..., c.start : c.stop].view(lead + c.shape) for c in self.columns}

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """Rows from tensors by name: name -> [..., *shape] -> [..., P]."""

        def row(column: Column) -> Tensor:
            tensor = named[column.name]
            lead = tensor.shape[: tensor.ndim - len(column.shape)]
            return tensor.reshape(*lead, column.stop - column.start)

        return torch.cat([row(column) for column in self.columns], dim=-1)

    @cached_property
    def buffers(self) -> Tensor | None:
        """The columns that no optimizer changes, bool [P]; None where there are none, or no others.

        In a sealed sum they have a clip of their own: a large variance makes no weight coarse.
        """
        mask = ~self.trained()
        return mask if bool(mask.any()) and not bool(mask.all()) else None

    def trained(self, part: slice | None = None) -> Tensor:
        """Which columns an optimizer may change, bool [P]; with a part, only columns inside it."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        for column in self.columns:
            mask[column.start : column.stop] = column.trained
        if part is not None:
            inside = torch.zeros_like(mask)
            inside[part] = True
            mask &= inside
        return mask


def layout_of(module: nn.Module, head: Sequence[str] | None = None) -> Layout:
    """The layout of a module; `head` (default: its own `head`) names the layers of its head."""
    names = _head_names(module, head)
    tensors = _tensors(module)
    in_head = {
        name: any(name == prefix or name.startswith(prefix + ".") for prefix in names or ())
        for name in tensors
    }
    for prefix in names or ():
        if not any(name == prefix or name.startswith(prefix + ".") for name in tensors):
            layers = ", ".join(sorted({name.split(".")[0] for name in tensors}))
            raise InputError(f"the model has no layer {prefix!r} for its head; it has: {layers}")
    columns: list[Column] = []
    start = 0
    for name in sorted(tensors, key=lambda name: in_head[name]):  # stable: the core first
        tensor, trained = tensors[name]
        columns.append(Column(name, tuple(tensor.shape), start, trained))
        start = columns[-1].stop
    split = (
        None if names is None else sum(t.numel() for n, (t, _) in tensors.items() if not in_head[n])
    )
    return Layout(tuple(columns), split)


def _head_names(module: nn.Module, head: Sequence[str] | None) -> tuple[str, ...] | None:
    names = head if head is not None else getattr(module, "head", None)
    if names is None or isinstance(names, nn.Module):
        return ("head",) if isinstance(names, nn.Module) else None
    return (names,) if isinstance(names, str) else tuple(names)


def _tensors(module: nn.Module) -> dict[str, tuple[Tensor, bool]]:
    """Parameters, then floating-point buffers, by name; a tensor with two names has one column.

    A parameter that its author froze is kept and mixed like a buffer.
    """
    params = {name: (p, p.requires_grad) for name, p in module.named_parameters()}
    kept = module.state_dict(keep_vars=True)  # without buffers that are not persistent
    buffers = {
        name: (buffer, False)
        for name, buffer in module.named_buffers()
        if buffer.is_floating_point() and name in kept
    }
    return {**params, **buffers}


def flat(module: nn.Module, layout: Layout) -> Tensor:
    """The module's values as one row [P]."""
    named = {name: tensor.detach() for name, (tensor, _) in _tensors(module).items()}
    return layout.flatten({c.name: named[c.name] for c in layout.columns})
