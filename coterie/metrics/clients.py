"""Fairness between nodes, whatever their cluster: how much worse off are those served worst?

All take one accuracy a node; a node without samples (NaN) is left out.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def worst_share(accuracies: ArrayLike, share: float = 0.1) -> float:
    """The mean accuracy of the worst served nodes: this share of all, at least one."""
    known = np.sort(_known(accuracies))
    worst = known[: max(math.ceil(share * known.size), 1)]
    return float(worst.mean()) if worst.size else float("nan")


def variance(accuracies: ArrayLike) -> float:
    """The variance over nodes (ddof 0); of percentages, so in squared points."""
    known = _known(accuracies)
    return float(known.var()) if known.size else float("nan")


def jain_index(accuracies: ArrayLike) -> float:
    """Jain's fairness index: 1 where all nodes do alike, 1/n where one has everything."""
    known = _known(accuracies)
    squares = float((known**2).sum())
    return float(known.sum() ** 2 / (known.size * squares)) if squares else float("nan")


def _known(values: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(values, np.float64)
    return rows[~np.isnan(rows)]
