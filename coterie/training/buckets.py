"""Few sizes for many row counts: a GPU captures work for a fixed number of rows.

Rows that are added to reach a size have learning rate 0 and no steps; nobody reads them back.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from coterie.core.engine import Work

PER_DOUBLING = 4  # sizes between a power of two and the next: at most a quarter of rows in vain


def bucket(rows: int) -> int:
    """The smallest of the sizes 1, 2, ..., 8, 10, 12, 14, 16, 20, 24, ... that holds these rows."""
    step = 1
    while rows > 2 * PER_DOUBLING * step:
        step *= 2
    return -(-rows // step) * step


class Sizes:
    """For how many rows work is captured: those of whole blocks exactly, all others in buckets."""

    def __init__(self) -> None:
        self.exact: set[int] = set()

    def expect(self, rows: int) -> None:
        """These many rows come every round, so that padding them would never pay."""
        self.exact.add(rows)

    def of(self, rows: int, most: int) -> int:
        """The size for these rows, of which at most `most` go together."""
        return rows if rows in self.exact else max(rows, min(bucket(rows), most))

    def chunks(self, rows: int, most: int) -> list[slice]:
        """Slices of one size that cover all rows, so that one capture serves all; may overlap."""
        size = even(rows, most)
        if rows not in self.exact:
            size = min(bucket(size), most, rows)
        starts = [min(start, rows - size) for start in range(0, rows, max(size, 1))]
        return [slice(start, start + size) for start in starts]


def even(rows: int, most: int) -> int:
    """The smallest size of which as few chunks of at most `most` as possible cover all rows."""
    return -(-rows // max(-(-rows // most), 1))


def padded(rows: Tensor, size: int) -> Tensor:
    """The rows and zeros after them."""
    if len(rows) == size:
        return rows
    return torch.cat([rows, rows.new_zeros(size - len(rows), *rows.shape[1:])])


def padded_work(work: Work, size: int) -> Work:
    """The work and rows after it that stand still."""
    fields = {f.name: getattr(work, f.name) for f in dataclasses.fields(work)}
    rows: dict[str, Any] = {
        name: padded(value, size) for name, value in fields.items() if isinstance(value, Tensor)
    }
    return dataclasses.replace(work, **rows)
