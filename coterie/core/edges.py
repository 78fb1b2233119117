"""Who heard whom in a block: as lists of edges, and as a table with a line for each of its rows."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from coterie.core.transfer import to_device

AT_ONCE = 1 << 28  # values gathered together; larger blocks go slot by slot


@dataclass(frozen=True)
class Slots:
    """The edges of each row of a block as a padded table [m, D]."""

    edges: Tensor  # [m, D] the number of the edge; -1 in empty slots
    heard: Tensor  # [m, D] the heard row at its other end, ascending; 0 in empty slots
    filled: Tensor  # [m, D] which slots are real
    full: bool  # all of them


class Edges(abc.ABC):
    """The edges into a block of `size` rows, sorted by (row that hears, row that is heard)."""

    size: int
    most: int  # edges that there are at most

    @property
    @abc.abstractmethod
    def sender(self) -> Tensor:
        """For every edge the index of the heard row, where the rows lie: [E]."""

    @property
    @abc.abstractmethod
    def receiver(self) -> Tensor:
        """For every edge the row of the block that heard it, where the rows lie: [E]."""

    @property
    @abc.abstractmethod
    def hearers(self) -> Tensor:
        """`receiver` on the CPU."""

    @property
    @abc.abstractmethod
    def slots(self) -> Slots:
        """The same as a table, where the rows lie."""


class EdgeList(Edges):
    """Edges that the host knows."""

    def __init__(self, sender: Tensor, receiver: Tensor, size: int, device: torch.device) -> None:
        self.size, self.most = size, len(sender)
        self._sender, self._receiver, self._device = sender, receiver, device

    @cached_property
    def sender(self) -> Tensor:
        return to_device(self._sender, self._device)

    @cached_property
    def receiver(self) -> Tensor:
        return to_device(self._receiver, self._device)

    @property
    def hearers(self) -> Tensor:
        return self._receiver

    @cached_property
    def slots(self) -> Slots:
        heard = torch.bincount(self._receiver, minlength=self.size)
        degree = int(heard.max()) if self.size else 0
        first = torch.cumsum(heard, 0) - heard
        filled = torch.arange(degree) < heard[:, None]
        edges = torch.where(filled, first[:, None] + torch.arange(degree), -1)
        table = torch.stack([edges, pad(self._sender)[edges], filled])
        table = to_device(table, self._device)
        return Slots(table[0], table[1], table[2].bool(), self.most == edges.numel())


class EdgeTable(Edges):
    """Edges of which the host knows only how long their table is.

    Lists of them have the length of the filled slots: where those are not all of them, whoever asks
    for a list waits for the GPU.
    """

    def __init__(self, heard: Tensor, filled: Tensor, full: bool) -> None:
        self.size, self.most = len(heard), heard.numel()
        self.heard, self.filled, self.full = heard, filled, full

    @cached_property
    def _filled_slots(self) -> Tensor:
        """Their numbers, line after line: [E]."""
        if self.full:
            return torch.arange(self.most, device=self.heard.device)
        return torch.nonzero(self.filled.flatten()).flatten()

    @cached_property
    def sender(self) -> Tensor:
        return self.heard.flatten()[self._filled_slots]

    @cached_property
    def receiver(self) -> Tensor:
        return self._filled_slots // self.heard.shape[1]

    @cached_property
    def hearers(self) -> Tensor:
        if self.full:
            return torch.arange(self.most) // self.heard.shape[1]
        return self.receiver.cpu()

    @cached_property
    def slots(self) -> Slots:
        number = self.filled.flatten().cumsum(0).view_as(self.filled) - 1
        edges = torch.where(self.filled, number, -1)
        return Slots(edges, self.heard, self.filled, self.full)


def pad(values: Tensor) -> Tensor:
    """Edge values with one more entry, where empty slots point to."""
    return torch.cat([values, values.new_zeros(1)])


def sum_slots(rows: Tensor, heard: Tensor, table: Tensor | None) -> Tensor:
    """Sum of table [m, D] (None: ones) times the heard rows, in source order, without atomics."""
    if rows.is_cuda and rows.dtype in (torch.float32, torch.float64):
        from coterie.core.slots_gpu import sum_slots_on_gpu

        return sum_slots_on_gpu(rows, heard, table)
    return gather_slots(rows, heard, table)


def gather_slots(rows: Tensor, heard: Tensor, table: Tensor | None) -> Tensor:
    """The same for all devices and types."""
    if heard.numel() * rows[:1].numel() <= AT_ONCE:
        part = rows[heard]  # [m, D, ...]
        if table is not None:
            shape = (*table.shape, *[1] * (rows.ndim - 1))
            # an empty slot holds somebody's row, which may have diverged: 0 x NaN is NaN
            part = part.mul_(table.view(shape)).masked_fill_((table == 0).view(shape), 0)
        return part.sum(1)
    total = rows.new_zeros(len(heard), *rows.shape[1:])
    for slot in range(heard.shape[1]):
        part = rows[heard[:, slot]]
        if table is not None:
            factor = table[:, slot].view(-1, *[1] * (rows.ndim - 1))
            part = part.mul_(factor).masked_fill_(factor == 0, 0)
        total += part
    return total


def dense_sum(rows: Tensor, heard: Tensor, table: Tensor) -> Tensor:
    """The same as a product of matrices, for tables [m, D] with many columns."""
    matrix = rows.new_zeros(len(heard), len(rows))
    line = torch.arange(len(heard), device=heard.device)[:, None].expand_as(heard)
    matrix.index_put_((line, heard), table, accumulate=True)
    flat = rows.reshape(len(rows), -1)
    broken = ~flat.isfinite()  # a diverged row reaches only those who heard it
    total = matrix @ flat.masked_fill(broken, 0)
    reached = (matrix != 0).to(rows.dtype) @ broken.to(rows.dtype) > 0
    return total.masked_fill(reached, torch.nan).view(len(heard), *rows.shape[1:])
