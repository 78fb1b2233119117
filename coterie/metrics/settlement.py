"""Settlement: did the heads that nodes chose sort them into their clusters?

A choice row holds the head chosen by each node (-1: it has not chosen yet), a cluster row its true
cluster. Nothing is settled before everybody has chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Judge = Callable[[ArrayLike, ArrayLike], bool]


def matrix(
    choice_row: ArrayLike, cluster: ArrayLike, heads: int | None = None
) -> NDArray[np.int64]:
    """How many nodes of each cluster (row, in sorted order) chose each head (column)."""
    choice = np.asarray(choice_row, np.int64)
    names, row = np.unique(np.asarray(cluster), return_inverse=True)
    columns = max(int(choice.max(initial=-1)) + 1, heads or 0)
    chose = choice >= 0
    counts = np.bincount((row * columns + choice)[chose], minlength=len(names) * columns)
    return counts.reshape(len(names), columns)


def settled(choice_row: ArrayLike, cluster: ArrayLike) -> bool:
    """Each cluster's nodes chose one head, and distinct clusters distinct heads."""
    chosen = matrix(choice_row, cluster) > 0
    return bool((chosen.sum(axis=1) == 1).all()) and unshared(choice_row, cluster)


def unshared(choice_row: ArrayLike, cluster: ArrayLike) -> bool:
    """No head was chosen in two clusters: what to ask when there are more heads than clusters."""
    if np.min(np.asarray(choice_row, np.int64), initial=0) < 0:
        return False
    chosen = matrix(choice_row, cluster) > 0
    return bool((chosen.sum(axis=0) <= 1).all())


def first_settled_round(
    choices: ArrayLike, cluster: ArrayLike, judge: Judge = settled
) -> int | None:
    """The first row of `[rounds, nodes]` from which it stays settled to the end, if any."""
    rows = np.asarray(choices, np.int64)
    good = np.array([judge(row, cluster) for row in rows], dtype=bool)
    if not good.size or not good[-1]:
        return None
    bad = np.flatnonzero(~good)
    return int(bad[-1]) + 1 if bad.size else 0


def verdict(
    choices: Sequence[Sequence[int]], rounds: Sequence[int], cluster: Sequence[str], heads: int
) -> dict[str, Any]:
    """Whether and when rows of choices settled, and how well the last matches the clusters.

    `rounds` are those of the rows; no rows: the algorithm does not choose.
    """
    if not len(choices):
        return {"settled": None, "first_settled_round": None, "adjusted_rand_index": None}
    judge = unshared if heads > len(set(cluster)) else settled
    first = first_settled_round(choices, cluster, judge)
    return {
        "settled": judge(choices[-1], cluster),
        "first_settled_round": None if first is None else rounds[first],
        "adjusted_rand_index": adjusted_rand_index(choices[-1], cluster),
    }


def adjusted_rand_index(choice_row: ArrayLike, cluster: ArrayLike) -> float:
    """How alike the heads and the clusters sort the nodes: 1 is the same, about 0 is chance."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(np.asarray(cluster), np.asarray(choice_row)))


def switches(choices: ArrayLike) -> NDArray[np.int64]:
    """How many nodes changed head in each row of `[rounds, nodes]`; none in the first."""
    rows = np.asarray(choices, np.int64)
    changed = np.zeros(len(rows), np.int64)
    changed[1:] = (rows[1:] != rows[:-1]).sum(axis=1)
    return changed
