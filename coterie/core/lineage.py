"""The family of models of a confederation: how models are named, and who made each of which.

An id is a sha256, never of weights: the same models have the same ids in every runtime, although
the last bits of their weights may differ. Anybody can compute an id again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

from torch import Tensor

ID = 32  # bytes of an id
ROOT = bytes(ID)  # the parent of models that nobody had trained before


def update_id(t: int, node: int, parent: bytes) -> bytes:
    """The name of what a node made of a model in round t."""
    number = t.to_bytes(8, "big") + node.to_bytes(8, "big")
    return hashlib.sha256(b"update" + number + parent).digest()


def model_id(parent: bytes, updates: Iterable[bytes]) -> bytes:
    """The name of the average of some updates of one model."""
    return hashlib.sha256(b"model" + parent + b"".join(sorted(updates))).digest()


@dataclass(frozen=True)
class Lineage:
    """The models that one round brought forth; the first axis is the replica."""

    count: Tensor  # [R] how many there are; later ones are padding
    ids: Tensor  # [R, M, ID] uint8, ascending
    parents: Tensor  # [R, M, ID] uint8
    merged: Tensor  # [R, M, n] bool: whose updates of the parent are in it
    followers: Tensor  # [R, M, n] bool: who published it
    popularity: Tensor  # [R, M] float64
    trained: Tensor  # [R, n] how many models each node trained

    def cpu(self) -> Lineage:
        """The same in the host's memory, in one go."""
        return Lineage(*(getattr(self, field.name).cpu() for field in fields(self)))
