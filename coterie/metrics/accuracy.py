"""Accuracy from confusion counts `[nodes, C, C]`: true class row, predicted class column.

A node without samples has accuracy NaN and is left out of every mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def per_node(confusion: ArrayLike) -> NDArray[np.float64]:
    """Each node's accuracy in percent."""
    counts = np.asarray(confusion, np.float64)
    correct = np.trace(counts, axis1=1, axis2=2)
    return 100 * ratio(correct, counts.sum(axis=(1, 2)))


def per_cluster(values: ArrayLike, cluster: ArrayLike) -> dict[Any, float]:
    """The mean of one value per node (accuracy, loss, bytes) over the nodes of each cluster."""
    rows, names = np.asarray(values, np.float64), np.asarray(cluster)
    return {name: overall(rows[names == name]) for name in np.unique(names).tolist()}


def overall(values: ArrayLike) -> float:
    """The mean over nodes, each node counted once whatever its number of samples."""
    known = _known(values)
    return float(known.mean()) if known.size else float("nan")


def worst_node(values: ArrayLike) -> float:
    """The lowest accuracy of any node."""
    known = _known(values)
    return float(known.min()) if known.size else float("nan")


def best_node(values: ArrayLike) -> float:
    """The highest accuracy of any node."""
    known = _known(values)
    return float(known.max()) if known.size else float("nan")


def ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole, NaN where whole is zero."""
    out: NDArray[np.float64] = np.full(whole.shape, np.nan)
    return np.divide(part, whole, out=out, where=whole != 0)


def _known(values: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(values, np.float64)
    return rows[~np.isnan(rows)]
