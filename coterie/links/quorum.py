"""How many members of a group a secure sum needs."""

from __future__ import annotations

import math

SMALLEST = 2  # the sum of one is a model
MAJORITY = 0.5  # with fewer, two halves of a group could be told different things


def unsafe(share: float) -> str:
    """What to say of a share that is none, or no majority."""
    return (
        "a secure sum needs a majority of its members, else two halves of them could be told "
        "different things, and together give away a model; use 0.5 (a majority) to 1 (all), "
        f"got {share:g}"
    )


def quorum(members: int, share: float = MAJORITY) -> int:
    """Members without whom nothing is opened: this share of a group, and always a majority."""
    return max(SMALLEST, members // 2 + 1, math.ceil(share * members - 1e-9))
