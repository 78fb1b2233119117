"""The records of one evaluation: what every node, every cluster and all of them got."""

from __future__ import annotations

from collections.abc import Iterator
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
    each = zip(names, *(_numbers(value) for value in values.values()), strict=True)
    return [plain(record) for record in made] + [
        {
            "kind": "node",
            **where,
            "node": node,
            "cluster": name,
            **dict(zip(values, mine, strict=True)),
        }
        for node, (name, *mine) in enumerate(each)
    ]


def _numbers(values: NDArray[Any]) -> list[float | None]:
    """Numbers as JSON has them, all at once: there may be thousands of nodes."""
    return [
        value if known else None
        for value, known in zip(values.tolist(), np.isfinite(values), strict=True)
    ]


def overall(metrics: dict[str, Any], loss: NDArray[np.float64]) -> dict[str, Any]:
    """What all nodes got together."""
    flat = {k: v for k, v in metrics.items() if not isinstance(v, dict | list)}
    return {key: plain(v) for key, v in flat.items()} | {
        "accuracy": metrics["accuracy_all"],
        "loss": plain(_mean(loss)),
    }


def head_records(
    where: dict[str, Any], losses: NDArray[np.float64], names: list[str]
) -> Iterator[dict[str, Any]]:
    """The train loss of every head `[nodes, k]`: mean and deviation over each cluster's nodes."""
    for name in dict.fromkeys(names):
        here = losses[np.array(names) == name]
        for head, column in enumerate(here.T):
            measured = {"loss": column.mean(), "std": column.std()}
            yield plain({"kind": "head", **where, "cluster": name, "head": head, **measured})


def _mean(values: NDArray[Any]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
