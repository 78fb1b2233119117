"""How large frames may be: known before the first comes, from what a node of the run holds."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from coterie.core.algorithm import Algorithm
from coterie.core.nodes import Nodes
from coterie.links.wire import Limits
from coterie.runtimes.roles import Client, role_of

MARGIN = 16  # times what a node holds: an algorithm may send several rows of everything it has
LEAST = 16 << 20  # bytes that are let in anyway
LETTER, NAME = 4 << 10, 16  # bytes of secure aggregation: of a member's letter, of a name in it


def frame_limits(algorithm: Algorithm, nodes: Nodes, largest: int = 0) -> Limits:
    """What a frame of this run may hold; `largest` in MiB where it is set, else by its weight."""
    if largest:
        return Limits.up_to(largest << 20)
    letters = nodes.n * (LETTER + NAME * nodes.n)  # one of each member, and each names them all
    return Limits.up_to(max(LEAST, MARGIN * held_by(algorithm, nodes) + letters))


def held_by(algorithm: Algorithm, nodes: Nodes) -> int:
    """Bytes of a model, of a peer's own state and of its server's, which make up all messages."""
    role = role_of(algorithm, nodes)
    states = [role.start(), *([role.server] if isinstance(role, Client) else [])]
    model = nodes.layout.size * nodes.no_params.element_size()
    return model + sum(map(_bytes, states))


def _bytes(state: Any) -> int:
    values = [getattr(state, field.name) for field in dataclasses.fields(state)]
    return sum(value.nbytes for value in values if isinstance(value, Tensor))
