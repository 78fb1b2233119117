"""What an algorithm gives when asked for models and notes; mistakes are told in its words."""

from __future__ import annotations

from torch import Tensor

from coterie.core.algorithm import Algorithm
from coterie.core.nodes import Nodes
from coterie.core.turns import kind_of
from coterie.errors import InputError


def checked_models(found: object, nodes: Nodes, algorithm: Algorithm) -> Tensor:
    """What `personal` of an algorithm gave for a block: a model a node, [m, P]."""
    shape = (len(nodes), nodes.layout.size)
    if isinstance(found, Tensor) and found.shape == shape:
        return found
    raise InputError(
        f"`personal` of {type(algorithm).__name__} gives a model a node, {list(shape)}, and here "
        f"{kind_of(found)}; with a server it is given what `deliver` makes"
    )


def checked_notes(found: object, server: Nodes, algorithm: Algorithm) -> dict[str, Tensor]:
    """What `notes` of an algorithm gave: numbers by name, a row a replica."""
    who = f"`notes` of {type(algorithm).__name__}"
    if not isinstance(found, dict):
        raise InputError(f"{who} gives a dict of names and tensors, and here {kind_of(found)}")
    for name, part in found.items():
        if not isinstance(part, Tensor) or part.ndim != 2 or len(part) != len(server):
            raise InputError(
                f"{who}: {name!r} is a tensor with a row a replica, [{len(server)}, k], "
                f"and here {kind_of(part)}"
            )
    return found
