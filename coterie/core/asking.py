"""Whom the rows of a block ask, where the host of a GPU need not look at it."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core.edges import EdgeTable


def ask_everybody(of: Tensor, n: int, full: bool) -> EdgeTable:
    """The edges of questions `of` [m, k], where the block holds all nodes of all replicas in order.

    Row r is node r % n of replica r // n, so that the heard rows are known without their keys.
    """
    row = torch.arange(len(of), device=of.device)[:, None]
    first = row - row % n  # of the same replica
    others = (of >= 0) & (of < n) & (first + of != row)  # nobody asks itself
    heard = torch.where(others, first + of, len(of)).sort(dim=1).values  # nobody comes last
    filled = heard < len(of)
    return EdgeTable(torch.where(filled, heard, 0), filled, full)


def faults(of: Tensor, filled: Tensor, full: bool) -> Tensor:
    """The largest id asked, and how many slots are empty that should not be: [2], where `of` is."""
    largest = of.max() if of.numel() else of.new_full((), -1)
    empty = (~filled & full).sum()
    return torch.stack([largest.long(), empty])


def check_faults(found: Tensor, n: int) -> None:
    """ValueError where a Fetch asked for nodes that do not exist, or was not `full` as it said."""
    largest, empty = found.tolist()
    if largest >= n:
        raise ValueError(f"a Fetch asks node {largest}, but ids end at {n - 1}")
    if empty > 0:
        raise ValueError(
            f"a Fetch says full=True, but {empty} entries of `of` are -1 or the asker itself; ask "
            "others, or leave out full=True"
        )
