"""Results as pandas frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def results(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per label, scenario and seed of a summary; clusters in columns `accuracy:NAME`."""
    import pandas as pd

    return pd.DataFrame([_row(result) for result in summary["results"]])


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without the tables in it: those by cluster become columns."""
    left_out = ("accuracy", "mse", "before_all_reduce", "unseen")
    row = {key: value for key, value in result.items() if key not in left_out}
    for key in ("accuracy_all", "mse_all"):
        row[f"unseen_{key}"] = (result.get("unseen") or {}).get(key)
    for key in ("accuracy", "mse"):
        row |= {f"{key}:{name}": value for name, value in (result[key] or {}).items()}
    return row
