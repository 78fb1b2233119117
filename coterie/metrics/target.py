"""How long it took to be good enough: the first evaluation with the accuracy that was asked for."""

from __future__ import annotations

from collections.abc import Iterable


def rounds_to_target(target: float, evaluations: Iterable[tuple[int, float | None]]) -> int | None:
    """The first of (round, accuracy in percent) to reach the target; none without a target."""
    reached = (done for done, accuracy in evaluations if (accuracy or 0.0) >= target > 0)
    return min(reached, default=None)
