"""The results as tables: rows for a terminal, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.metrics.fairness import DISTANCES
from coterie.metrics.traffic import format_bytes
from coterie.report.summarize import (
    ELSEWHERE,
    Results,
    aggregate,
    cluster_names,
    cluster_pairs,
    grouped,
    pair_key,
    settled_at_once,
)

ORACLE = "(knows the clusters)"
PICKED = "picked by tests"  # nobody could: to compare with papers that did
NOTHING = "–"
TITLE = {"accuracy": "%", "mse": "MSE"}

EVENNESS = (*DISTANCES, "gap", "accuracy_variance", "jain_index")  # how alike all are treated
ABLE = 0.9  # of the best accuracy of a scenario: who has less is never called fairest

Spread = Mapping[str, Any]
Place = tuple[Any, Any]  # label, scenario


@dataclass(frozen=True)
class Cell:
    """What a table shows, what it is sorted by, and whether it is the best of its scenario."""

    text: str
    value: float | str | None = None
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A header and rows of as many cells."""

    header: list[str]
    rows: list[list[Cell]]

    def texts(self) -> list[list[str]]:
        """The rows as plain strings."""
        return [[cell.text for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Column:
    """A measured column: the key of its aggregate, how to write it and what is better."""

    title: str
    key: str
    write: Callable[[Spread], str]
    better: int = 0  # 1: higher, -1: lower, 0: neither


def by_metric(results: Results) -> dict[str, list[Mapping[str, Any]]]:
    """The results that share a metric, and so a table."""
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        tables.setdefault(result["metric"], []).append(result)
    return tables


def shown(result: Mapping[str, Any]) -> str:
    """A result's label, marked when its algorithm is told the clusters."""
    return f"{result['label']} {ORACLE}" if result.get("oracle") else str(result["label"])


def results_table(
    results: Results, order: Sequence[str] = (), clusters: Sequence[str] = ()
) -> Table:
    """One row for each (scenario, label): mean ± std over seeds, the best of a scenario marked.

    The results share one metric (see `by_metric`); who knows the clusters is never best.
    """
    columns = _columns(results, clusters)
    spreads = aggregate(results)
    header = ["algorithm", "scenario", *(c.title for c in columns), "settled", "seconds"]
    rows = []
    for (label, scenario), group in in_order(results, order):
        found = spreads[label][scenario]
        measured = [_cell(column, found) for column in columns]
        ends = [_settled(group), _cell(SECONDS, found)]
        rows.append([Cell(shown(group[0]), label), Cell(scenario, scenario), *measured, *ends])
    table = Table(header, rows)
    comparable = len({result["rounds"] for result in results}) <= 1
    return _mark_best(table, columns, _able(spreads)) if comparable else table


def nodes_table(results: Results, order: Sequence[str] = ()) -> Table:
    """One row for each (scenario, label): how those are served who are served worst."""
    columns = [*BY_NODE, *_unseen(results)]
    spreads = aggregate(results)
    rows = [
        [
            *(Cell(shown(group[0]), label), Cell(scenario, scenario)),
            *(_cell(column, spreads[label][scenario]) for column in columns),
        ]
        for (label, scenario), group in in_order(results, order)
    ]
    table = Table(["algorithm", "scenario", *(c.title for c in columns)], rows)
    comparable = len({result["rounds"] for result in results}) <= 1
    return without_empty(_mark_best(table, columns, _able(spreads)) if comparable else table)


def seeds_table(results: Results, order: Sequence[str] = (), clusters: Sequence[str] = ()) -> Table:
    """One row for each (scenario, label, seed)."""
    columns = [c for c in _columns(results, clusters) if c.write is not _bytes]
    extra = ["settled", "since round", "Rand index", "settlement", "restarts", "before all-reduce"]
    rows = []
    for _, group in in_order(results, order):
        for result in group:
            found = aggregate([result])[result["label"]][result["scenario"]]
            names = [Cell(shown(result), result["label"]), Cell(result["scenario"])]
            measured = [_cell(column, found) for column in columns]
            rows.append([*names, _number(result["seed"], "d"), *measured, *_choices(result)])
    header = ["algorithm", "scenario", "seed", *(c.title for c in columns), *extra]
    return without_empty(Table(header, rows))


def pairs_table(results: Results, order: Sequence[str] = ()) -> Table:
    """One row for each (scenario, label, two clusters), where there are more than two clusters."""
    columns = [column for column in FAIRNESS if column.key in DISTANCES]
    spreads = aggregate(results)
    rows = []
    for (label, scenario), group in in_order(results, order):
        for pair in cluster_pairs(group):
            found = spreads[label][scenario]
            cells = [_cell(replace(c, key=pair_key(c.key, pair)), found) for c in columns]
            names = [Cell(shown(group[0]), label), Cell(scenario, scenario)]
            rows.append([*names, Cell(f"{pair[0]} and {pair[1]}"), *cells])
    return Table(["algorithm", "scenario", "clusters", *(c.title for c in columns)], rows)


def in_order(
    results: Results, order: Sequence[str]
) -> list[tuple[tuple[str, str], list[Mapping[str, Any]]]]:
    """The results of each (label, scenario), scenario by scenario, labels in the order given."""
    groups = grouped(results)
    scenarios = list(dict.fromkeys(scenario for _, scenario in groups))
    labels = list(dict.fromkeys([*order, *(label for label, _ in groups)]))
    return sorted(
        groups.items(), key=lambda item: (scenarios.index(item[0][1]), labels.index(item[0][0]))
    )


def to_markdown(table: Table) -> str:
    """A Markdown table, the best values in bold."""
    lines = [[_plain(name) for name in table.header], ["---"] * len(table.header)]
    lines += [
        [f"**{_plain(c.text)}**" if c.best else _plain(c.text) for c in row] for row in table.rows
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_latex(table: Table) -> str:
    """A LaTeX tabular that needs no package, the best values in bold."""
    lines = [[_tex(name) for name in table.header]]
    lines += [
        [rf"\textbf{{{_tex(c.text)}}}" if c.best else _tex(c.text) for c in row]
        for row in table.rows
    ]
    head, *body = [" & ".join(line) + r" \\" for line in lines]
    start = rf"\begin{{tabular}}{{ll{'r' * (len(table.header) - 2)}}}"
    return "\n".join([start, r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}", ""])


def to_csv(results: Results, order: Sequence[str] = ()) -> str:
    """The aggregate as numbers, one line for each (scenario, label, key)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["scenario", "label", "oracle", "seeds", "key", "mean", "std", "low", "high"])
    spreads = aggregate(results)
    for (label, scenario), group in in_order(results, order):
        for key, found in spreads[label][scenario].items():
            if found["mean"] is not None:
                low, high = found["ci95"] or ("", "")
                start = [scenario, label, bool(group[0].get("oracle")), len(group), key]
                writer.writerow([*start, found["mean"], found["std"], low, high])
    return out.getvalue()


def plus_minus(digits: int) -> Callable[[Spread], str]:
    """Write mean ± std with so many digits; without the ± where there is no spread."""

    def write(found: Spread) -> str:
        text = f"{found['mean']:.{digits}f}"
        return text if not found["ci95"] else f"{text} ± {found['std']:.{digits}f}"

    return write


def _bytes(found: Spread) -> str:
    return format_bytes(found["mean"])


def _seconds(found: Spread) -> str:
    return f"{found['mean']:.1f}"


SECONDS = Column("seconds", "train_seconds", _seconds)
BY_NODE = (
    Column("worst node %", "worst_node", plus_minus(2), 1),
    Column("worst 10% of nodes %", "worst_tenth", plus_minus(2), 1),
    Column("variance", "accuracy_variance", plus_minus(1), -1),
    Column("Jain's index", "jain_index", plus_minus(4), 1),
)
FAIRNESS = (
    Column("DP", "demographic_parity", plus_minus(4), -1),
    Column("EO", "equalized_odds", plus_minus(4), -1),
    Column("EO (TPR)", "equalized_odds_tpr", plus_minus(4), -1),
    Column("fair %", "fair_accuracy", plus_minus(2), 1),
)


SEVERAL = (  # of more than two clusters
    Column("worst cluster %", "worst_cluster_accuracy", plus_minus(2), 1),
    Column("gap", "gap", plus_minus(2), -1),
    Column("DP, worst pair", "demographic_parity_worst", plus_minus(4), -1),
    Column("EO, worst pair", "equalized_odds_worst", plus_minus(4), -1),
)


def _unseen(results: Results) -> list[Column]:
    """What newcomers got, where there were some."""
    there = [result["unseen"]["accuracy"] or {} for result in results if result.get("unseen")]
    names = dict.fromkeys(name for found in there for name in found)
    keys = {f"unseen {name} %": f"unseen_accuracy:{name}" for name in names if len(names) > 1}
    keys |= {"unseen %": "unseen_accuracy_all", "worst 10% of unseen %": "unseen_worst_tenth"}
    return [Column(title, key, plus_minus(2), 1) for title, key in keys.items() if there]


def _columns(results: Results, clusters: Sequence[str]) -> list[Column]:
    metric = results[0]["metric"] if results else "accuracy"
    write, better = (plus_minus(4), -1) if metric == "mse" else (plus_minus(2), 1)
    there = cluster_names(results)
    names = [*(c for c in clusters if c in there), *(c for c in there if c not in clusters)]
    unit = TITLE[metric]
    several = len(names) > 1  # one cluster is all, and there is nobody to be unfair to
    measured = [
        Column(f"{name} {unit}", f"{metric}:{name}", write, better) for name in names if several
    ]
    measured.append(Column(f"all {unit}", f"{metric}_all", write, better))
    for place in ELSEWHERE:
        if any(result.get(place) for result in results):
            name, sign = (PICKED, 0) if place == "by_tests" else (place, better)
            measured.append(Column(f"{name} {unit}", f"{place}_{metric}_all", write, sign))
    if any(result.get("rounds_to_target") for result in results):
        measured.append(Column("rounds to target", "rounds_to_target", plus_minus(1)))
    fair = several and metric == "accuracy"
    fairness = FAIRNESS * fair + SEVERAL * (fair and len(names) > 2)
    sent = [Column("sent/node", "bytes_per_node", _bytes)]
    if any(result.get("server_bytes") is not None for result in results):
        sent.append(Column("server sent", "server_bytes", _bytes))
    return [*measured, *fairness, *sent]


def _cell(column: Column, found: Mapping[str, Spread]) -> Cell:
    value = found.get(column.key)
    if value is None or value["mean"] is None:
        return Cell(NOTHING)
    return Cell(column.write(value), value["mean"])


def _settled(group: Results) -> Cell:
    known = [flag for flag in map(settled_at_once, group) if flag is not None]
    if not known:
        return Cell(NOTHING)
    again = sum(1 for result in group if result.get("restarts"))
    text = f"{sum(known)}/{len(known)}" + (f", {again} restarted" if again else "")
    return Cell(text, sum(known) / len(known))


def _choices(result: Mapping[str, Any]) -> list[Cell]:
    flag = {True: Cell("yes", 1), False: Cell("no", 0), None: Cell(NOTHING)}[result.get("settled")]
    before = (result.get("before_all_reduce") or {}).get(f"{result['metric']}_all")
    return [
        flag,
        _number(result.get("first_settled_round"), "d"),
        _number(result.get("adjusted_rand_index"), ".2f"),
        Cell(result.get("settlement") or NOTHING),
        _number(result.get("restarts") or None, "d"),
        _number(before, ".4f" if result["metric"] == "mse" else ".2f"),
    ]


def _number(value: float | None, form: str) -> Cell:
    return Cell(NOTHING) if value is None else Cell(f"{value:{form}}", value)


def without(table: Table, name: str) -> Table:
    """The table without a column."""
    kept = [number for number, title in enumerate(table.header) if title != name]
    rows = [[row[number] for number in kept] for row in table.rows]
    return Table([table.header[number] for number in kept], rows)


def without_empty(table: Table) -> Table:
    """The table without the columns in which no row has anything."""
    full = [any(row[i].text != NOTHING for row in table.rows) for i in range(len(table.header))]
    rows = [[cell for cell, keep in zip(row, full, strict=True) if keep] for row in table.rows]
    return Table([name for name, keep in zip(table.header, full, strict=True) if keep], rows)


def _able(spreads: Mapping[str, Mapping[str, Mapping[str, Spread]]]) -> set[Place]:
    """Who may be called fairest: a model that only guesses treats all alike, and serves nobody."""
    found = {
        (label, scenario): keys.get("accuracy_all", {}).get("mean") or 0.0
        for label, scenarios in spreads.items()
        for scenario, keys in scenarios.items()
    }
    best = {at: max(found[place] for place in found if place[1] == at) for _, at in found}
    return {place for place, value in found.items() if value >= ABLE * best[place[1]]}


def _mark_best(table: Table, columns: Sequence[Column], able: set[Place]) -> Table:
    rows = [list(row) for row in table.rows]
    for index, column in enumerate(columns, start=2):
        field = [row for row in rows if not row[0].text.endswith(ORACLE)]
        if column.key.startswith(EVENNESS):
            field = [row for row in field if (row[0].value, row[1].value) in able]
        for winner in _winners(field, index, column.better):
            winner[index] = replace(winner[index], best=True)
    return Table(table.header, rows)


def _winners(rows: Sequence[list[Cell]], index: int, better: int) -> list[list[Cell]]:
    """The best row of each scenario in which two or more rows compete, and are not all alike."""
    fields: dict[str, list[list[Cell]]] = {}
    for row in rows:
        if better and isinstance(row[index].value, float):
            fields.setdefault(row[1].text, []).append(row)
    return [
        max(field, key=lambda row: better * float(row[index].value or 0))
        for field in fields.values()
        if len({row[index].text for row in field}) > 1
    ]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: no new cell, no new line, no HTML."""
    return html.escape(text, quote=False).replace("|", r"\|").replace("\n", " ")


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", NOTHING: "--"}
    special |= {char: "\\" + char for char in "&%$#_{}"}
    special |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    return "".join(special.get(char, char) for char in text)
