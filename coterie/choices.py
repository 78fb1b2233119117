"""What nodes chose in rounds that are not written yet: a head, or peers to average with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.metrics.picks import pick_records

Record = dict[str, Any]
Found = tuple[
    Tensor, Tensor | None
]  # [replicas * n, k] ids, -1: nobody; groups left [replicas * n]


class Choices:
    """The heads that nodes chose; a GPU is asked for them together."""

    def __init__(self, where: Sequence[Record]) -> None:
        self.where = where  # label, scenario and seed of every replica
        self.last: NDArray[np.int64] | None = None  # latest written
        self.waiting: list[tuple[int, Tensor]] = []

    def resume(self, chosen: Tensor | None) -> None:
        """Go on after a round in which nodes chose these."""
        self.last = None if chosen is None else _by_replica(chosen, len(self.where))

    def keep(self, done: int, chosen: Tensor | None) -> None:
        """Remember the choices of a round, where the algorithm has heads."""
        if chosen is not None:
            self.waiting.append((done, chosen))

    def taken(self) -> Iterator[Record]:
        """A record for each round and replica in which somebody changed its mind."""
        for done, chosen in self.waiting:
            rows = _by_replica(chosen, len(self.where))
            for number, (place, row) in enumerate(zip(self.where, rows, strict=True)):
                if self.last is None or not np.array_equal(row, self.last[number]):
                    yield {"kind": "choice", **place, "round": done, "choice": row.tolist()}
            self.last = rows
        self.waiting = []


class Picks:
    """The peers that nodes picked, set against their true clusters."""

    def __init__(self, where: Sequence[Record], clusters: Sequence[Sequence[str]]) -> None:
        self.where = where
        self.clusters = clusters  # of every replica's nodes
        self.waiting: list[tuple[int, Found]] = []

    def keep(self, done: int, found: Found | None) -> None:
        """Remember the picks of a round, where the algorithm picks peers."""
        if found is not None:
            self.waiting.append((done, found))

    def taken(self) -> Iterator[Record]:
        """The records of all rounds remembered, which are then forgotten."""
        for done, (picked, competitive) in self.waiting:
            rows = _by_replica(picked, len(self.where))
            left = None if competitive is None else _by_replica(competitive, len(self.where))
            for number, (place, names) in enumerate(zip(self.where, self.clusters, strict=True)):
                mine = None if left is None else left[number]
                at = {**place, "round": done}
                yield from pick_records(at, range(len(names)), rows[number], mine, names)
        self.waiting = []


def _by_replica(rows: Tensor, replicas: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows.cpu().numpy().astype(np.int64)
    return found.reshape(replicas, -1, *found.shape[1:])
