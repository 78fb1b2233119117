"""Whom nodes picked, beside the true clusters: how many of their peers were of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.metrics.evaluation import plain

Whole = NDArray[np.int64]


def pick_records(
    where: dict[str, Any],
    ids: Sequence[int],
    picked: Whole,
    competitive: Whole | None,
    clusters: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """For each cluster the share of picked peers that are of it too, and what there was to pick.

    Row r of `picked` [r, k] (-1: nobody) and of `competitive` [r] is node `ids[r]`'s; `clusters`
    are all nodes' by id, empty where unknown. A cluster that picked nobody has no record.
    """
    names = np.array(clusters)
    mine = names[np.asarray(ids, np.int64)]
    theirs = names[picked.clip(min=0)]
    there = (picked >= 0) & (theirs != "")
    same = there & (theirs == mine[:, None])
    for name in dict.fromkeys(clusters):
        here = mine == name
        count = int(there[here].sum())
        if count:
            share = {"same": same[here].sum() / count, "picks": count}
            left = {} if competitive is None else _left(competitive[here])
            yield plain({"kind": "picked", **where, "cluster": name, **share, **left})


def _left(competitive: Whole) -> dict[str, float]:
    """How many groups nodes could still draw: the mean over nodes, and the median."""
    return {
        "competitive": float(competitive.mean()),
        "competitive_median": float(np.median(competitive)),
    }
