"""One evaluation of one population: from counts and losses to the numbers in the records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.metrics import accuracy, clients, fairness

KEYS = (  # always all of them; what was not measured is null
    "accuracy",
    "accuracy_all",
    "worst_node",
    "best_node",
    "worst_cluster",
    "worst_cluster_accuracy",
    "gap",
    "worst_tenth",
    "accuracy_variance",
    "jain_index",
    "consensus_distance",
    "fair_accuracy",
    "demographic_parity",
    "equalized_odds",
    "equalized_odds_tpr",
    *(f"{distance}_worst" for distance in fairness.DISTANCES),
    "pairs",
    "mse",
    "mse_all",
    "loss_all",
    "diverged",
)


def evaluate(
    confusion: NDArray[np.int64] | None,
    loss: NDArray[np.float64],
    cluster: list[str],
    alpha: float,
    comparable: bool,
) -> dict[str, Any]:
    """The metrics of all nodes; `cluster` names each node's, `comparable`: parity makes sense."""
    names = np.array(cluster)
    metrics: dict[str, Any] = dict.fromkeys(KEYS)
    metrics["loss_all"] = accuracy.overall(loss)
    metrics["diverged"] = 0
    if confusion is None:
        metrics["mse"] = accuracy.per_cluster(loss, names)
        metrics["mse_all"] = accuracy.overall(loss)
        errors = {name: -value for name, value in metrics["mse"].items()}
        metrics["worst_cluster"] = fairness.worst_cluster(errors)
        metrics["gap"] = fairness.gap(errors.values())
        return _plain_table(metrics)
    per_node = accuracy.per_node(confusion)
    metrics["diverged"] = int((np.isfinite(per_node) & ~np.isfinite(loss)).sum())
    by_cluster = accuracy.per_cluster(per_node, names)
    metrics["accuracy"] = by_cluster
    metrics["accuracy_all"] = accuracy.overall(per_node)
    metrics["worst_node"] = accuracy.worst_node(per_node)
    metrics["best_node"] = accuracy.best_node(per_node)
    metrics["worst_cluster"] = fairness.worst_cluster(by_cluster)
    metrics["worst_cluster_accuracy"] = by_cluster.get(metrics["worst_cluster"])
    metrics["gap"] = fairness.gap(by_cluster.values())
    metrics["worst_tenth"] = clients.worst_share(per_node)
    metrics["accuracy_variance"] = clients.variance(per_node)
    metrics["jain_index"] = clients.jain_index(per_node)
    metrics["fair_accuracy"] = fairness.fair_accuracy(by_cluster.values(), alpha)
    if comparable:
        metrics |= fairness.compare(confusion, names)
    return _plain_table(metrics)


def plain(value: Any) -> Any:
    """Values as JSON has them: NaN becomes null, numpy numbers become Python's."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_table(table: dict[str, Any]) -> dict[str, Any]:
    return {key: plain(value) for key, value in table.items()}
