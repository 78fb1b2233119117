"""Fairness between clusters: is the minority served as well as the majority?

Demographic parity and equalized odds compare two clusters: counts (true and false positives and
negatives of each class) are averaged over the nodes of a cluster first, then turned into rates.
With more clusters the value is the mean over all pairs, and `compare` also gives every pair and the
worst (the thesis compares its first two clusters alone). All are 0 when clusters are treated alike.
A class that a cluster never shows has no rate there and is left out; one cluster alone has NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.metrics.accuracy import overall, ratio

Name = TypeVar("Name")


@dataclass(frozen=True)
class Rates:
    """What one cluster's mean confusion says about each class: `[C]` fractions."""

    chosen: NDArray[np.float64]  # (TP + FP) / N
    true_positive: NDArray[np.float64]  # TP / (TP + FN)
    false_positive: NDArray[np.float64]  # FP / (FP + TN)


Distance = Callable[[Rates, Rates], float]


@dataclass(frozen=True)
class Pairs:
    """The value of each pair of clusters, and the pair treated least alike."""

    value: dict[tuple[Any, Any], float]
    worst: tuple[Any, Any] | None


def parity_distance(a: Rates, b: Rates) -> float:
    """How differently two clusters are given each class: mean over classes of |P0 - P1|."""
    return overall(np.abs(a.chosen - b.chosen))


def tpr_distance(a: Rates, b: Rates) -> float:
    """The equalized odds of the thesis's text: mean over classes of |TPR0 - TPR1|."""
    return overall(np.abs(a.true_positive - b.true_positive))


def odds_distance(a: Rates, b: Rates) -> float:
    """The equalized odds of the thesis's tables: mean of |TPR0 - TPR1| + |FPR0 - FPR1|."""
    return tpr_distance(a, b) + overall(np.abs(a.false_positive - b.false_positive))


DISTANCES: dict[str, Distance] = {
    "demographic_parity": parity_distance,
    "equalized_odds": odds_distance,
    "equalized_odds_tpr": tpr_distance,
}


def compare(confusion: ArrayLike, cluster: ArrayLike) -> dict[str, Any]:
    """Every distance of DISTANCES: its mean over pairs of clusters, its worst, and each pair's."""
    found = {key: pairwise(confusion, cluster, d).value for key, d in DISTANCES.items()}
    means = {key: overall(list(value.values())) for key, value in found.items()}
    worst = {f"{key}_worst": highest(value.values()) for key, value in found.items()}
    pairs = [
        {"clusters": list(pair), **{key: value[pair] for key, value in found.items()}}
        for pair in found["demographic_parity"]
    ]
    return {**means, **worst, "pairs": pairs}


def demographic_parity(confusion: ArrayLike, cluster: ArrayLike) -> float:
    """Demographic parity, mean over pairs of clusters."""
    return _mean_over_pairs(confusion, cluster, parity_distance)


def equalized_odds(confusion: ArrayLike, cluster: ArrayLike) -> float:
    """Equalized odds over true and false positive rates, mean over pairs of clusters."""
    return _mean_over_pairs(confusion, cluster, odds_distance)


def equalized_odds_tpr(confusion: ArrayLike, cluster: ArrayLike) -> float:
    """Equalized odds over true positive rates only, mean over pairs of clusters."""
    return _mean_over_pairs(confusion, cluster, tpr_distance)


def pairwise(confusion: ArrayLike, cluster: ArrayLike, distance: Distance) -> Pairs:
    """A distance between every two clusters, such as `parity_distance`."""
    rates = cluster_rates(confusion, cluster)
    value = {(a, b): distance(rates[a], rates[b]) for a, b in combinations(rates, 2)}
    known = [pair for pair in value if not np.isnan(value[pair])]
    return Pairs(value, max(known, key=value.__getitem__, default=None))


def cluster_rates(confusion: ArrayLike, cluster: ArrayLike) -> dict[Any, Rates]:
    """Each cluster's rates, from the mean of its nodes' counts."""
    counts, names = np.asarray(confusion, np.float64), np.asarray(cluster)
    return {name: _rates(counts[names == name].mean(axis=0)) for name in np.unique(names).tolist()}


def _rates(counts: NDArray[np.float64]) -> Rates:
    total, shown, chosen = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    right = np.diag(counts)
    return Rates(
        chosen=ratio(chosen, np.full_like(chosen, total)),
        true_positive=ratio(right, shown),
        false_positive=ratio(chosen - right, total - shown),
    )


def _mean_over_pairs(confusion: ArrayLike, cluster: ArrayLike, distance: Distance) -> float:
    return overall(list(pairwise(confusion, cluster, distance).value.values()))


def fair_accuracy(cluster_accuracies: Iterable[float], alpha: float = 2 / 3) -> float:
    """How well and how alike clusters do, percent: alpha * mean + (1 - alpha) * (100 - gap)."""
    accuracies = list(cluster_accuracies)
    return alpha * overall(accuracies) + (1 - alpha) * (100 - gap(accuracies))


def gap(cluster_accuracies: Iterable[float]) -> float:
    """The best cluster's accuracy less the worst's."""
    known = [value for value in cluster_accuracies if not np.isnan(value)]
    return max(known) - min(known) if known else float("nan")


def highest(values: Iterable[float]) -> float:
    """The largest of the values that are there."""
    return max((value for value in values if not np.isnan(value)), default=float("nan"))


def worst_cluster(cluster_accuracies: Mapping[Name, float]) -> Name | None:
    """The cluster with the lowest accuracy."""
    known = {name: value for name, value in cluster_accuracies.items() if not np.isnan(value)}
    return min(known, key=known.__getitem__, default=None)
