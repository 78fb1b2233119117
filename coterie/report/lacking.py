"""What a run folder still lacks: rounds, whole algorithms, or peers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.report.records import Run
from coterie.report.summarize import Result


@dataclass(frozen=True)
class Planned:
    """What the configuration of a run asks for, as far as it matters here."""

    rounds: int
    runs: int  # of each algorithm: scenarios times seeds
    stop: bool  # whether a stack ends once it is at the target

    def standing(self, label: str, results: Sequence[Result]) -> str:
        """How far an algorithm is; empty: at its end."""
        own = [result for result in results if result.label == label]
        if not own:
            return f"{label} has not begun"
        begun = [result.rounds for result in own if not self._ended(result)]
        if begun:
            return f"{label} after {min(begun)} of {self.rounds} rounds"
        return f"{label} with {len(own)} of {self.runs} runs" if len(own) < self.runs else ""

    def _ended(self, result: Result) -> bool:
        there = self.stop and result.rounds_to_target is not None
        return there or result.rounds >= self.rounds


def _planned(config: Mapping[str, Any]) -> Planned:
    length, ratios = config["experiment"], config.get("data", {}).get("ratios", ())
    runs = max(1, len(ratios)) * len(length["seeds"])
    return Planned(int(length["rounds"]), runs, config.get("evaluate", {}).get("stop", False))


def lacking(run: Run) -> list[str]:
    """A sentence for what is not finished and one for who is not there; none: it is whole."""
    try:
        planned = _planned(tomllib.loads(run.config))
    except (ValueError, KeyError, TypeError, AttributeError):  # an edited file, a cut one
        return []
    summary = run.summary
    parts = [planned.standing(label, summary.results) for label in summary.order]
    open_ones = ", ".join(part for part in parts if part)
    told = [f"{summary.name} is not finished: {open_ones}."] if open_ones else []
    absent = sorted({peer for result in summary.results for peer in result.missing})
    if absent:
        who = f"peer{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}"
        told.append(f"Without {who}: gone before the end, or not among the folders.")
    return told
