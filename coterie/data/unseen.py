"""Which nodes do not train: they come when it is over, and are judged by what they then get."""

from __future__ import annotations

import numpy as np

from coterie.data.keyed import order
from coterie.errors import InputError


def unseen(cluster: np.ndarray, seed: int, share: float) -> np.ndarray:
    """The nodes of one population that are kept from training, ascending ids.

    They are as many of every cluster as its size asks for; one of each cluster always trains.
    """
    names, sizes = np.unique(cluster, return_counts=True)
    total = round(share * len(cluster))
    if not 0 < total <= len(cluster) - len(names):
        raise InputError(
            f"evaluate.unseen_clients: {share:g} of {len(cluster)} nodes in {len(names)} clusters "
            f"is {total}; it must be at least one, and leave one of every cluster"
        )
    taken = []
    for name, count in zip(names, _counts(sizes, share, total), strict=True):
        members = np.flatnonzero(cluster == name)
        shuffled = members[order(len(members), seed, f"unseen {name}")]
        taken.append(shuffled[:count])
    return np.sort(np.concatenate(taken))


def _counts(sizes: np.ndarray, share: float, total: int) -> np.ndarray:
    """How many of each cluster: the largest remainders round up, until all are dealt."""
    counts: np.ndarray = np.minimum(np.floor(share * sizes).astype(np.int64), sizes - 1)
    while counts.sum() < total:
        left = np.where(counts < sizes - 1, share * sizes - counts, -np.inf)
        counts[int(left.argmax())] += 1
    return counts
