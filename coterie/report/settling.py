"""Settlement over many seeds: how often and when, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.metrics import settlement
from coterie.metrics.statistics import share_interval
from coterie.report import figures
from coterie.report.figures import Panel
from coterie.report.heads import History, drawn_rounds, histories
from coterie.report.records import Study
from coterie.report.summarize import Results, settled_at_once
from coterie.report.tables import NOTHING, Cell, Table, in_order, shown, without_empty


@dataclass(frozen=True)
class Rate:
    """How many of some seeds settled, and where the rate over all seeds lies."""

    settled: int
    seeds: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of the seeds that settled."""
        return self.settled / self.seeds


def rate_of(flags: NDArray[np.bool_] | list[bool]) -> Rate:
    """The rate over one flag a seed, of which there is at least one; a 95% interval by Wilson."""
    count, total = int(np.sum(flags)), len(flags)
    low, high = share_interval(count, total) or (0.0, 1.0)
    return Rate(count, total, low, high)


def settlement_table(results: Results, order: list[str]) -> Table:
    """One row for each (scenario, label) that chooses heads: how often and when it settled.

    A seed that started again has not settled, whatever became of it then.
    """
    header = ["algorithm", "scenario", "rounds", "settled", "rate %", "95% interval"]
    rows = [
        _row(group)
        for _, group in in_order(results, order)
        if any(result["settled"] is not None for result in group)
    ]
    return without_empty(Table([*header, "median round", "first", "last", "restarted"], rows))


def _row(group: list[Mapping[str, Any]]) -> list[Cell]:
    known = [result for result in group if result["settled"] is not None]
    flags = [bool(settled_at_once(result)) for result in known]
    rate, again = rate_of(flags), sum(1 for result in known if result.get("restarts"))
    when = [r["first_settled_round"] for r, flag in zip(known, flags, strict=True) if flag]
    times = [float(np.median(when)), min(when), max(when)] if when else [None] * 3
    return [
        Cell(shown(group[0]), group[0]["label"]),
        Cell(group[0]["scenario"], group[0]["scenario"]),
        Cell(str(known[0]["rounds"]), known[0]["rounds"]),
        Cell(f"{rate.settled}/{rate.seeds}", rate.settled),
        Cell(f"{100 * rate.share:.0f}", rate.share),
        Cell(f"{100 * rate.low:.0f} to {100 * rate.high:.0f}", rate.low),
        *(Cell(NOTHING) if t is None else Cell(f"{t:.0f}", t) for t in times),
        Cell(str(again), again) if again else Cell(NOTHING),
    ]


def settlement_rates(study: Study) -> list[Panel]:
    """One panel for each scenario: the share of seeds that are settled, by round."""
    return [panel for s, _ in figures.scenarios(study) if (panel := _rates(study, s)).figure.data]


def _rates(study: Study, scenario: str) -> Panel:
    figure = figures.canvas("rounds", "% of seeds settled")
    judged = {r["label"] for r in study.results if r["settled"] is not None}
    for label, look in figures.looks(study).items():
        found = histories(study, label, scenario) if label in judged else []
        if found:
            rounds = drawn_rounds(study, label, scenario)
            again = _restarted(study, label, scenario)
            figure.add_traces(list(figures.band(look, rounds, *_rate_curve(found, again, rounds))))
    figure.update_yaxes(range=[-3, 103])
    return Panel(scenario, figure)


def _restarted(study: Study, label: str, scenario: str) -> set[int]:
    """The seeds that started again."""
    results = [r for r in study.results if (r["label"], r["scenario"]) == (label, scenario)]
    return {result["seed"] for result in results if result.get("restarts")}


def _rate_curve(
    found: list[History], again: set[int], rounds: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The rate in percent by round, and the ends of its interval."""
    # with more heads than clusters no head may be shared; with as many, that is the same as settled
    flags = [
        [h.seed not in again and settlement.unshared(row, h.clusters) for row in h.at(rounds)]
        for h in found
    ]
    rates = [rate_of(column) for column in np.array(flags).T]
    values = np.array([[rate.share, rate.low, rate.high] for rate in rates]).T
    share, low, high = 100 * values
    return share, low, high
