"""Whom the nodes of a part picked in the rounds that are not written down yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from coterie.metrics.picks import Whole, pick_records

Picks = tuple[
    Tensor, Tensor | None
]  # [replicas * n, k] ids, -1: nobody; groups left [replicas * n]


class PickLog:
    """Picks as they came; they are fetched together, so that a GPU need not wait."""

    def __init__(self) -> None:
        self.pending: list[tuple[int, Picks]] = []

    def note(self, done: int, picks: Picks | None) -> None:
        """Keep the picks of a round, where the algorithm picks peers."""
        if picks is not None:
            self.pending.append((done, picks))

    def records(
        self, where: Sequence[dict[str, Any]], clusters: Sequence[Sequence[str]]
    ) -> Iterator[dict[str, Any]]:
        """The records of all rounds kept, which are then forgotten; by replica."""
        pending, self.pending = self.pending, []
        for done, (picked, competitive) in pending:
            rows = _by_replica(picked, len(where))
            left = [None] * len(where)
            if competitive is not None:
                left = list(_by_replica(competitive, len(where)))
            for place, names, mine, open_ in zip(where, clusters, rows, left, strict=True):
                at = {**place, "round": done}
                yield from pick_records(at, range(len(names)), mine, open_, names)


def _by_replica(rows: Tensor, replicas: int) -> Whole:
    found: Whole = rows.cpu().numpy().astype(np.int64)
    return found.reshape(replicas, -1, *found.shape[1:])
