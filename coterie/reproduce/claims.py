"""What a paper claims, held against what was measured: seed by seed, so that no mean hides one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from coterie.report.records import Study, column_of
from coterie.report.summarize import aggregate, spread
from coterie.report.tables import NOTHING, Cell, Table, plus_minus
from coterie.reproduce.beside import digits, title
from coterie.reproduce.experiment import DROPS, ClaimTable, Experiment

Place = tuple[str, str]  # label, scenario
Values = dict[int, float]  # by seed
State = Literal["holds", "does not hold", "open"]
TINY = 1e-9  # numbers that are equal, as far as their rounding goes
NOTE = (
    "A claim holds where it holds for every seed. Drops: how much accuracy falls from one "
    "evaluation to the next, mean over all (a rise counts as 0)."
)


@dataclass(frozen=True)
class Verdict:
    """A claim and the values that it compares, by seed."""

    claim: ClaimTable
    ours: Values = field(default_factory=dict)
    other: Values = field(default_factory=dict)  # of a label, or a number repeated

    @property
    def apart(self) -> Values:
        """Ours less the other, for each seed that has both."""
        return {
            seed: self.ours[seed] - self.other[seed] for seed in self.ours if seed in self.other
        }

    @property
    def held(self) -> int:
        """For how many seeds it holds."""
        return sum(_fits(self.claim, value) for value in self.apart.values())

    @property
    def state(self) -> State:
        """Open where no seed has been measured."""
        if not self.apart:
            return "open"
        return "holds" if self.held == len(self.apart) else "does not hold"

    def line(self) -> str:
        """The verdict in one line."""
        if not self.apart:
            return f"open: {self.claim.text}"
        ours, wanted, apart, seeds = (cell.text for cell in _numbers(self))
        numbers = f"{ours}; wanted {wanted}; apart {apart}; {seeds} seeds"
        return f"{self.state}: {self.claim.text} [{numbers}]"


def _fits(claim: ClaimTable, apart: float) -> bool:
    if claim.relation == "=":
        return abs(apart) <= claim.by + TINY
    lead = apart if claim.relation == ">" else -apart
    return lead >= claim.by - TINY if claim.by else lead > 0


def verdicts(experiment: Experiment, study: Study | None) -> list[Verdict]:
    """A verdict on each claim of an experiment."""
    return [_verdict(claim, experiment, study) for claim in experiment.file.claim]


def _verdict(claim: ClaimTable, experiment: Experiment, study: Study | None) -> Verdict:
    if study is None:
        return Verdict(claim)
    ours = values(study, experiment.place(claim.label, claim.scenario), claim.key, claim.round)
    if isinstance(claim.than, float):
        return Verdict(claim, ours, dict.fromkeys(ours, claim.than))
    there = experiment.place(claim.than, claim.scenario)
    return Verdict(claim, ours, values(study, there, claim.key, claim.round))


def values(study: Study, place: Place, key: str, t: int = 0) -> Values:
    """What every seed of a label and scenario got: in the end, or after round t."""
    if key == DROPS:
        return _drops(study, place)
    if t:
        return _after(study, place, key, t)
    found = {
        result["seed"]: aggregate([result])[place[0]][place[1]].get(key, {}).get("mean")
        for result in study.results
        if (result["label"], result["scenario"]) == place
    }
    return {seed: value for seed, value in found.items() if value is not None}


def _after(study: Study, place: Place, key: str, t: int) -> Values:
    kind, column, cluster = column_of(key)
    rows = _rows(study.frames[kind], place)
    rows = rows[(rows["round"] == t) & rows[column].notna()]
    rows = rows[rows["cluster"] == cluster] if cluster else rows
    return {int(seed): float(v) for seed, v in zip(rows["seed"], rows[column], strict=True)}


def _drops(study: Study, place: Place) -> Values:
    """How much the accuracy of all falls from one evaluation to the next, mean over all."""
    rows = _rows(study.frames["overall"], place).sort_values("round")
    curves = {int(seed): rows["accuracy"][rows["seed"] == seed] for seed in set(rows["seed"])}
    falls = {seed: (-curve.diff().dropna()).clip(lower=0) for seed, curve in curves.items()}
    return {seed: float(fall.mean()) for seed, fall in falls.items() if len(fall)}


def _rows(frame: pd.DataFrame, place: Place) -> pd.DataFrame:
    here = (frame["label"] == place[0]) & (frame["scenario"] == place[1])
    found: pd.DataFrame = frame[here & (frame["phase"] == "round")]
    return found


def table(made: Sequence[Verdict]) -> Table:
    """A line for each claim."""
    header = ["claim", "verdict", "measured", "ours", "wanted", "difference", "seeds"]
    return Table(header, [_line(verdict) for verdict in made])


def _line(verdict: Verdict) -> list[Cell]:
    claim = verdict.claim
    after = f", round {claim.round}" if claim.round else ""
    start = [Cell(claim.text), Cell(verdict.state), Cell(title(claim.key) + after)]
    return [*start, *(_numbers(verdict) if verdict.apart else [Cell(NOTHING)] * 4)]


def _numbers(verdict: Verdict) -> list[Cell]:
    """Ours, what it is compared with, the difference and the seeds."""
    claim, apart = verdict.claim, verdict.apart
    write = plus_minus(digits(claim.key))
    ours, other = (spread(own[seed] for seed in apart) for own in (verdict.ours, verdict.other))
    wanted = f"{claim.than:g}" if isinstance(claim.than, float) else f"{claim.than} {write(other)}"
    margin = f" by {claim.by:g}" if claim.by else ""
    return [
        Cell(f"{claim.label} {write(ours)}"),
        Cell(f"{claim.relation} {wanted}{margin}"),
        Cell(_difference(claim, ours["mean"], other["mean"])),
        Cell(f"{verdict.held} of {len(apart)}"),
    ]


def _difference(claim: ClaimTable, ours: float, other: float) -> str:
    text = f"{ours - other:+.{digits(claim.key)}f}"
    errors = claim.key.startswith("mse") and other > 0
    return f"{text} ({(ours - other) / other:+.1%})" if errors else text


def count(made: Sequence[Verdict]) -> str:
    """How many claims hold, in a sentence; empty where there are none."""
    states = [verdict.state for verdict in made]
    if not states:
        return ""
    opened = f", {states.count('open')} open" if "open" in states else ""
    return f"claims: {states.count('holds')} of {len(states)} hold{opened}."
