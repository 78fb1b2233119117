"""Our numbers beside the paper's: rows, the difference, and the table in every form."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.metrics.traffic import format_bytes
from coterie.report.summarize import (
    Results,
    aggregate,
    cluster_names,
    grouped,
    settled_at_once,
)
from coterie.report.tables import NOTHING, Cell, Table, plus_minus, shown
from coterie.reproduce.experiment import Experiment, PaperTable

Spread = Mapping[str, Any]
BEYOND = "!"  # marks a difference of more than two standard deviations
NOTE = (
    f"Mean ± population standard deviation over seeds. {BEYOND} marks a difference of more than "
    "two standard deviations, that of our seeds and that of the paper's taken together."
)


@dataclass(frozen=True)
class Value:
    """A number of the paper, with its spread where it gives one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Difference:
    """Ours less the paper's; `beyond`: more than the spread over seeds explains."""

    value: float
    beyond: bool


@dataclass(frozen=True)
class Row:
    """A label on a scenario: what we measured, what the paper says, or that it is still open."""

    label: str
    scenario: str
    results: Results = ()
    measured: Mapping[str, Spread] = field(default_factory=dict)
    paper: Mapping[str, Value] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    state: str = "done"

    def ours(self, key: str) -> Spread | None:
        """Mean, std and interval over seeds of a key, where it was measured."""
        found = self.measured.get(key)
        return None if found is None or found["mean"] is None else found

    def difference(self, key: str) -> Difference | None:
        """How far ours is from the paper's."""
        ours, paper = self.ours(key), self.paper.get(key)
        if ours is None or paper is None:
            return None
        value = ours["mean"] - paper.mean
        spread = math.hypot(ours["std"] or 0, paper.std or 0)
        allowed = max(2 * spread, self.tolerance.get(key, 0))
        return Difference(value, beyond=bool(allowed) and abs(value) > allowed)

    def settled(self) -> tuple[int, int] | None:
        """How many seeds settled at once, of how many; None for algorithms that choose nothing."""
        known = [flag for flag in map(settled_at_once, self.results) if flag is not None]
        return (sum(known), len(known)) if known else None


def rows(experiment: Experiment, results: Results, states: Mapping[str, str]) -> list[Row]:
    """A row for each label and scenario, scenario by scenario; `states` are those of the parts."""
    groups = grouped(results)
    made = {
        (label, scenario): _row(
            experiment.file.paper, label, scenario, groups.get((label, scenario), []), state
        )
        for part in experiment.parts
        if (state := states.get(part.name))
        for label, scenario in part.cells()
    }
    scenarios = list(dict.fromkeys(scenario for _, scenario in made))
    return [made[cell] for s in scenarios for cell in made if cell[1] == s]


def _row(paper: PaperTable | None, label: str, scenario: str, results: Results, state: str) -> Row:
    done = results if state == "done" else []
    measured = aggregate(done)[label][scenario] if done else {}
    if paper is None:
        return Row(label, scenario, done, measured, state=state)
    values = paper.values.get(paper.row_of(label), {}).get(scenario, [])
    given = {key: _value(value) for key, value in zip(paper.keys, values, strict=False)}
    known = {key: value for key, value in given.items() if not math.isnan(value.mean)}
    return Row(label, scenario, done, measured, known, paper.tolerance, state)


def _value(number: float | tuple[float, float]) -> Value:
    return Value(*number) if isinstance(number, tuple) else Value(number)


def keys_of(made: Sequence[Row], clusters: Sequence[str] = ()) -> list[str]:
    """The columns: the paper's, else what was measured."""
    paper = dict.fromkeys(key for row in made for key in row.paper)
    if paper:
        return list(paper)
    results = [result for row in made for result in row.results]
    there = cluster_names(results)
    names = [*(c for c in clusters if c in there), *(c for c in there if c not in clusters)]
    metric = results[0]["metric"] if results else "accuracy"
    fair = ["demographic_parity", "equalized_odds", "fair_accuracy"] if metric == "accuracy" else []
    if fair and len(names) > 2:
        fair = ["gap", *fair[:2], "equalized_odds_tpr", *fair[2:]]
    timed = any(result.get("rounds_to_target") for result in results)
    ends = ["rounds_to_target"] if timed else []
    if len(names) == 1:  # nobody to be unfair to
        return [f"{metric}_all", *ends]
    return [*(f"{metric}:{name}" for name in names), f"{metric}_all", *fair, *ends]


NODES = ("worst_node", "worst_tenth", "best_node")
SHORT = {
    "worst_node": "worst node %",
    "best_node": "best node %",
    "models": "models",
    "adjusted_rand_index": "ARI",
    "demographic_parity": "DP",
    "equalized_odds": "EO",
    "equalized_odds_tpr": "EO (TPR)",
    "gap": "gap",
    "fair_accuracy": "fair %",
    "fair_accuracy_of_means": "fair %",
    "bytes_per_node": "sent/node",
    "accuracy_all": "all %",
    "cluster_mean": "mean %",
    "unseen_accuracy_all": "unseen %",
    "everywhere_accuracy_all": "everywhere %",
    "by_tests_accuracy_all": "picked by tests %",
    "consensus_distance": "apart",
    "mse_all": "all MSE",
    "loss_all": "loss",
    "rounds_to_target": "rounds",
    "settled": "settled",
    "drops": "drops of %",
}


def title(key: str) -> str:
    """The head of a column."""
    kind, _, name = key.partition(":")
    if kind == "note":
        return name
    return f"{name} {'MSE' if kind == 'mse' else '%'}" if name else SHORT.get(key, key)


def digits(key: str) -> int:
    """How many decimals a key is written with: percents have two, fractions four."""
    if key in ("models", "rounds_to_target"):
        return 1
    short = "accuracy" in key or key.startswith("note:")
    return 2 if short or key in (*NODES, "cluster_mean", "settled", "drops", "gap") else 4


def table(made: Sequence[Row], keys: Sequence[str]) -> Table:
    """Ours, the paper's and the difference as lines of one table."""
    header = ["algorithm", "scenario", "", *map(title, keys), "settled", "seeds", "seconds"]
    return Table(header, [line for row in made for line in _lines(row, keys)])


def _lines(row: Row, keys: Sequence[str]) -> Iterator[list[Cell]]:
    names = [Cell(_name(row), row.label), Cell(row.scenario, row.scenario)]
    ours = [_write(key, row.ours(key)) for key in keys]
    yield [*names, Cell("ours" if row.results else row.state), *ours, *_ends(row)]
    if not row.paper:
        return
    paper = [_write(key, _spread(row.paper.get(key))) for key in keys]
    ends = [Cell(""), Cell(""), Cell("")]
    yield [Cell("", row.label), Cell("", row.scenario), Cell("paper"), *paper, *ends]
    if row.results:
        apart = [_apart(key, row.difference(key)) for key in keys]
        yield [Cell("", row.label), Cell("", row.scenario), Cell("difference"), *apart, *ends]


def _name(row: Row) -> str:
    return shown(row.results[0]) if row.results else row.label


def _spread(value: Value | None) -> Spread | None:
    return None if value is None else {"mean": value.mean, "std": value.std, "ci95": value.std}


def _write(key: str, found: Spread | None) -> Cell:
    if found is None:
        return Cell(NOTHING)
    if key == "bytes_per_node":
        return Cell(format_bytes(found["mean"]), found["mean"])
    return Cell(plus_minus(digits(key))(found), found["mean"])


def _apart(key: str, found: Difference | None) -> Cell:
    if found is None:
        return Cell(NOTHING)
    mark = BEYOND if found.beyond else ""
    return Cell(f"{found.value:+.{digits(key)}f}{mark}", found.value)


def _ends(row: Row) -> list[Cell]:
    settled = row.settled()
    seconds = row.ours("train_seconds")
    again = sum(1 for result in row.results if result.get("restarts"))
    mark = f", {again} restarted" if again else ""
    return [
        Cell("{}/{}".format(*settled) + mark, settled[0] / settled[1])
        if settled
        else Cell(NOTHING),
        Cell(str(len(row.results)), len(row.results)) if row.results else Cell(NOTHING),
        Cell(f"{seconds['mean']:.1f}", seconds["mean"]) if seconds else Cell(NOTHING),
    ]


def short_table(made: Sequence[Row], keys: Sequence[str]) -> Table:
    """The table for a terminal: fewer columns, and spreads for the clusters alone."""
    some = [key for key in keys if key != "demographic_parity"]
    header = ["algorithm", "nodes", *map(title, some), "settled", "s"]
    lines: list[list[Cell]] = []
    for row in made:
        state = "" if row.results else " (open)"
        ours = [_brief(key, row.ours(key)) for key in some]
        settled, _, seconds = _ends(row)
        lines.append([Cell(_name(row) + state), Cell(row.scenario), *ours, settled, seconds])
        if row.paper:
            paper = [_brief(key, _spread(row.paper.get(key))) for key in some]
            lines.append([Cell("  paper"), Cell(""), *paper, Cell(""), Cell("")])
        if row.paper and row.results:
            apart = [_apart(key, row.difference(key)) for key in some]
            lines.append([Cell("  difference"), Cell(""), *apart, Cell(""), Cell("")])
    return Table(header, lines)


def _brief(key: str, found: Spread | None) -> Cell:
    if found is None or ":" in key:
        cell = _write(key, found)
        return Cell(cell.text.replace(" ± ", "±"), cell.value)
    return _write(key, {**found, "ci95": None})


COLUMNS = (
    *("scenario", "label", "state", "seeds", "settled", "seconds", "key"),
    *("ours", "ours_std", "paper", "paper_std", "difference", "beyond_two_std"),
)


def to_csv(made: Sequence[Row], keys: Sequence[str]) -> str:
    """One line for each row and key, as numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in made:
        settled, seeds, seconds = (cell.value for cell in _ends(row))
        start = [row.scenario, row.label, row.state, seeds, settled, seconds]
        for key in keys:
            writer.writerow([*start, key, *_numbers(row, key)])
    return out.getvalue()


def _numbers(row: Row, key: str) -> list[Any]:
    ours, paper, apart = row.ours(key), row.paper.get(key), row.difference(key)
    return [
        *((ours["mean"], ours["std"]) if ours else ("", "")),
        *((paper.mean, paper.std) if paper else ("", "")),
        *((apart.value, apart.beyond) if apart else ("", "")),
    ]
