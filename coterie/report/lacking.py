"""What a run folder still lacks: rounds, whole algorithms, or peers."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from pydantic import BaseModel, ValidationError

from coterie.report.records import Run
from coterie.report.summarize import Result


class Length(BaseModel):
    """How many rounds with which seeds."""

    rounds: int = 0
    seeds: list[int] = []


class Ratios(BaseModel):
    """The scenarios; none: the one of the clusters' own counts."""

    ratios: list[str] = []


class Ending(BaseModel):
    """Whether a stack ends once it is at the target."""

    stop: bool = False


class Planned(BaseModel):
    """What the configuration of a run asks for, as far as it matters here."""

    experiment: Length = Length()
    data: Ratios = Ratios()
    evaluate: Ending = Ending()

    def standing(self, label: str, results: Sequence[Result]) -> str:
        """How far an algorithm is; empty: at its end."""
        own = [result for result in results if result.label == label]
        if not own:
            return f"{label} has not begun"
        done, arrived = min(r.rounds for r in own), all(r.rounds_to_target for r in own)
        if done < self.experiment.rounds and not (self.evaluate.stop and arrived):
            return f"{label} after {done} of {self.experiment.rounds} rounds"
        runs = max(1, len(self.data.ratios)) * len(self.experiment.seeds)
        return f"{label} with {len(own)} of {runs} runs" if len(own) < runs else ""


def lacking(run: Run) -> list[str]:
    """A sentence for what is not finished and one for who is not there; none: it is whole."""
    try:
        planned = Planned.model_validate(tomllib.loads(run.config))
    except (tomllib.TOMLDecodeError, ValidationError):
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
