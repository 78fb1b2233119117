"""What a server noted: samples of each domain, how even they are, how much branches count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from coterie.report import figures
from coterie.report.figures import HEADS, Look, Panel
from coterie.report.records import Study
from coterie.report.summarize import aggregate
from coterie.report.tables import NOTHING, Cell, Table, in_order, plus_minus, shown

STEPS = 50  # of a curve: the clients of a round are few, so some rounds are counted together
SCALE = "lambda "  # what the notes of a layer's lambda begin with
PREFIX = "note:"  # of their keys in an aggregate


def domain_shares(study: Study) -> list[Panel]:
    """Per label and scenario: the share of samples in each domain, mean over seeds.

    Domains have no order of their own: each seed's are ranked by all their samples.
    """
    panels = []
    for label, scenario in _cells(study):
        rows = _noted(study, "domains", label, scenario)
        tables = [_counts(own) for _, own in rows.groupby("seed")]
        if tables:
            panels.append(Panel(f"{label} · {scenario}", _shares(tables)))
    return panels


def entropies(study: Study) -> list[Panel]:
    """Per scenario: the entropy of the domains' shares, every label's mean over seeds."""
    panels = []
    for scenario in dict.fromkeys(scenario for _, scenario in _cells(study)):
        figure = figures.canvas("rounds", "nats")
        for label, look in figures.looks(study).items():
            rows = _noted(study, "entropy", label, scenario)
            if len(rows):
                figure.add_traces(_line(look, rows))
        figure.update_yaxes(rangemode="tozero")
        if figure.data:
            panels.append(Panel(scenario, figure))
    return panels


def scales(study: Study) -> list[Panel]:
    """Per label and scenario: lambda of every layer, mean over seeds, ±1 std as a band."""
    panels = []
    for label, scenario in _cells(study):
        rows = _noted(study, SCALE, label, scenario)
        figure = figures.canvas("rounds", "lambda")
        for number, name in enumerate(dict.fromkeys(rows["name"])):
            layer = figures.plain(name.removeprefix(SCALE))
            look = Look(name, layer, HEADS[number % len(HEADS)], figures.DASHES[number // 7 % 4])
            figure.add_traces(_line(look, rows[rows["name"] == name]))
        if figure.data:
            panels.append(Panel(f"{label} · {scenario}", figure))
    return panels


def notes_table(study: Study) -> Table:
    """One row for each (scenario, label) with notes: what they were in the end, ± std."""
    names = list(dict.fromkeys(name for r in study.results for name in r.get("notes") or {}))
    spreads = aggregate(study.results)
    rows = []
    for (label, scenario), group in in_order(study.results, study.order):
        found = [spreads[label][scenario].get(PREFIX + name) for name in names]
        if any(found):
            cells = [
                Cell(plus_minus(3)(spread), spread["mean"])
                if spread and spread["mean"] is not None
                else Cell(NOTHING)
                for spread in found
            ]
            rows.append([Cell(shown(group[0]), label), Cell(scenario, scenario), *cells])
    return Table(["algorithm", "scenario", *names], rows)


def _cells(study: Study) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["label"], r["scenario"]) for r in study.results))


def _noted(study: Study, begins: str, label: str, scenario: str) -> pd.DataFrame:
    """The notes of a label on a scenario whose names begin so."""
    frame = study.frames["note"]
    here = (frame["label"] == label) & (frame["scenario"] == scenario) & frame["round"].notna()
    named = frame["name"].str.startswith(begins) & frame["values"].map(bool)
    found: pd.DataFrame = frame[here & named]
    return found


def _line(look: Look, rows: pd.DataFrame) -> list[go.Scatter]:
    single = rows.assign(value=rows["values"].map(lambda values: values[0]), phase="round")
    curve = figures.mean_and_std(single, "value", "round")
    x, mean, std = figures.thin(curve[["x", "mean", "std"]].to_numpy()).T
    return list(figures.band(look, x, mean, mean - std, mean + std))


def _counts(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rounds [s], and the samples of each domain until then [s, D], the largest domain first."""
    width = rows["values"].map(len).max()
    kept = rows[rows["values"].map(len) == width].sort_values("round")
    counts = np.array(kept["values"].tolist(), float)
    pieces = np.array_split(np.arange(len(counts)), min(len(counts), STEPS))
    together = np.array([counts[piece].sum(axis=0) for piece in pieces])
    rounds = np.array([kept["round"].iloc[piece[-1]] for piece in pieces], float)
    return rounds, together[:, np.argsort(-counts.sum(axis=0), kind="stable")]


def _shares(tables: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> go.Figure:
    rounds = tables[0][0]
    alike = [counts for _, counts in tables if counts.shape == tables[0][1].shape]
    shares = [100 * counts / counts.sum(axis=1, keepdims=True).clip(1) for counts in alike]
    figure = figures.canvas("rounds", "% of the samples")
    for rank, row in enumerate(np.mean(shares, axis=0).T):
        color = HEADS[rank % len(HEADS)]
        figure.add_trace(
            go.Scatter(
                x=rounds.tolist(),
                y=[round(float(share), 2) for share in row],
                name=f"domain {rank + 1}",
                stackgroup="domains",
                fillcolor=color,
                line={"width": 0, "color": color},
            )
        )
    figure.update_yaxes(range=[0, 100])
    return figure
