"""The records of one evaluation: what every node, every cluster and all of them got."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.metrics.evaluation import plain


def records(
    where: dict[str, Any],
    metrics: dict[str, Any],
    names: list[str],
    accuracy: NDArray[np.float64],
    loss: NDArray[np.float64],
    sent: NDArray[np.int64],
) -> list[dict[str, Any]]:
    """The records of one evaluation of one replica: overall, by cluster, by node."""
    cluster = np.array(names)
    values = {"accuracy": accuracy, "loss": loss, "bytes": sent}
    made = [{"kind": "overall", **where, **overall(metrics, loss), "bytes": _mean(sent)}]
    for name in dict.fromkeys(names):
        here = cluster == name
        means = {key: _mean(value[here]) for key, value in values.items()}
        made.append(
            {"kind": "cluster", **where, "cluster": name, "nodes": int(here.sum()), **means}
        )
    for node, name in enumerate(names):
        mine = {key: value[node] for key, value in values.items()}
        made.append({"kind": "node", **where, "node": node, "cluster": name, **mine})
    return [plain(record) for record in made]


def overall(metrics: dict[str, Any], loss: NDArray[np.float64]) -> dict[str, Any]:
    """What all nodes got together."""
    flat = {k: v for k, v in metrics.items() if not isinstance(v, dict | list)}
    return {key: plain(v) for key, v in flat.items()} | {
        "accuracy": metrics["accuracy_all"],
        "loss": plain(_mean(loss)),
    }


def _mean(values: NDArray[Any]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
