"""What the server of an algorithm notes of its rounds, as records: numbers by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from coterie.metrics.evaluation import plain

Record = dict[str, Any]


class Notes:
    """The notes of rounds that are not written yet; a GPU is asked for them together."""

    def __init__(self, where: Sequence[Record]) -> None:
        self.where = where  # label, scenario and seed of every replica
        self.waiting: list[tuple[int, dict[str, Tensor]]] = []

    def keep(self, done: int, found: dict[str, Tensor]) -> None:
        """Remember the notes [replicas, k] of a round."""
        if found:
            self.waiting.append((done, found))

    def taken(self) -> Iterator[Record]:
        """A record for each round, replica and name, which are then forgotten."""
        for done, found in self.waiting:
            for name, rows in found.items():
                for place, values in zip(self.where, rows.double().cpu().tolist(), strict=True):
                    noted = {"round": done, "name": name, "values": plain(values)}
                    yield {"kind": "note", **place, **noted}
        self.waiting = []


def latest(records: Iterable[Record], where: Mapping[str, Any]) -> dict[str, float]:
    """The last number of every name that stands for one."""
    found = {}
    for record in records:
        if where.items() <= record.items() and len(record["values"]) == 1:
            found[record["name"]] = record["values"][0]
    return found
