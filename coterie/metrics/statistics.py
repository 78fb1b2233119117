"""Mean and spread over seeds; seeds without a value (None or NaN) are left out."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def known(values: Iterable[float | None]) -> NDArray[np.float64]:
    """The values that are there."""
    return np.array([v for v in values if v is not None and not math.isnan(v)], np.float64)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean, or None without values."""
    there = known(values)
    return float(there.mean()) if there.size else None


def std(values: Iterable[float | None]) -> float | None:
    """The population standard deviation (ddof 0, as the thesis), or None without values."""
    there = known(values)
    return float(there.std()) if there.size else None


def confidence_interval(
    values: Iterable[float | None], level: float = 0.95
) -> tuple[float, float] | None:
    """Where the mean over all seeds lies, by Student's t; None with fewer than two values."""
    from scipy.special import (
        stdtrit,
    )  # the quantile of scipy.stats.t, in a tenth of its import time

    there = known(values)
    if there.size < 2:
        return None
    error = there.std(ddof=1) / math.sqrt(there.size)
    reach = float(stdtrit(there.size - 1, (1 + level) / 2) * error)
    return float(there.mean()) - reach, float(there.mean()) + reach


def share_interval(count: int, total: int, level: float = 0.95) -> tuple[float, float] | None:
    """Where a share lies that was met `count` times in `total` (Wilson's interval); None of none.

    Unlike the mean's interval it is right for shares of 0 and 1, and for few tries.
    """
    from scipy.special import ndtri

    if not total:
        return None
    z = float(ndtri((1 + level) / 2))
    share, weight = count / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    reach = z * math.sqrt((share * (1 - share) + weight / 4) / total) / (1 + weight)
    return max(0.0, middle - reach), min(1.0, middle + reach)
