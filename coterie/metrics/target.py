"""How long it took to be good enough, read off the curve of the best accuracy so far."""

from __future__ import annotations

from collections.abc import Iterable


def rounds_to_target(
    target: float, evaluations: Iterable[tuple[int, float | None]]
) -> float | None:
    """Where the best accuracy so far, of (round, percent), crosses the target; None: nowhere.

    Between two evaluations the curve is a line, as McMahan et al. (2017) draw it.
    """
    before: tuple[int, float] | None = None  # the last evaluation, with the best accuracy so far
    for done, accuracy in sorted((t, a) for t, a in evaluations if a is not None):
        if accuracy >= target > 0:
            if before is None:
                return float(done)
            since, best = before
            return since + (done - since) * (target - best) / (accuracy - best)
        before = (done, accuracy if before is None else max(before[1], accuracy))
    return None
