"""Whom nodes picked over rounds: how many peers of their own cluster, out of how many groups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from coterie.report import figures
from coterie.report.figures import Panel
from coterie.report.records import Study

POINTS = 30  # of a curve: rounds are averaged between them, because single ones are noisy
CHANCE = "#808890"


def picked_over_rounds(study: Study) -> list[Panel]:
    """One panel for each scenario and cluster: every label's share of peers of the own cluster.

    The band is one standard deviation over seeds; the dotted line is what chance gives.
    """
    panels = []
    for scenario, cluster, rows in _panels(study, "same"):
        figure = figures.canvas("rounds", "% of the own cluster")
        for label, look in figures.looks(study).items():
            seeds = 100 * _by_seed(rows[rows["label"] == label], "same")
            if len(seeds):
                mean, std = seeds.mean(axis=1).to_numpy(), seeds.std(axis=1, ddof=0).to_numpy()
                x = seeds.index.to_numpy()
                figure.add_traces(list(figures.band(look, x, mean, mean - std, mean + std)))
        figure.add_traces(_chance(study, scenario, cluster, float(rows["round"].max())))
        figure.update_yaxes(range=[-3, 103])
        panels.append(Panel(f"{scenario} · {cluster}", figure, scenario))
    return panels


def competitive_over_rounds(study: Study) -> list[Panel]:
    """One panel for each scenario and cluster: groups that a node in the middle can still draw.

    The line is the mean over seeds of the median over nodes; the band goes from the lowest to the
    highest seed.
    """
    panels = []
    most = max(1.0, float(study.frames["picked"]["competitive_median"].max()))  # 1 for NaN too
    top = float(np.log10(most))  # equal in all panels
    for scenario, cluster, rows in _panels(study, "competitive_median"):
        figure = figures.canvas("rounds", "groups left")
        for label, look in figures.looks(study).items():
            seeds = _by_seed(rows[rows["label"] == label], "competitive_median")
            if len(seeds):
                mean, low, high = seeds.mean(axis=1), seeds.min(axis=1), seeds.max(axis=1)
                x, ends = seeds.index.to_numpy(), (low.to_numpy(), high.to_numpy())
                figure.add_traces(list(figures.band(look, x, mean.to_numpy(), *ends)))
        figure.update_yaxes(type="log", range=[-0.1, top + 0.1])  # powers of ten, from one group
        panels.append(Panel(f"{scenario} · {cluster}", figure, scenario))
    return panels


def _panels(study: Study, value: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Scenario, cluster and the records that have this value."""
    frame = study.frames["picked"]
    frame = frame[frame[value].notna() & frame["round"].notna()]
    for scenario, _ in figures.scenarios(study):
        rows = frame[frame["scenario"] == scenario]
        for cluster in figures.clusters_of(study, np.array(sorted(set(rows["cluster"])), str)):
            yield scenario, cluster, rows[rows["cluster"] == cluster]


def _by_seed(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Means over neighboring rounds: a row for each point, at its mean round; a column a seed."""
    width = max(1, -(-int(rows["round"].max()) // POINTS)) if len(rows) else 1
    point = (rows["round"] - 1) // width
    made = rows.assign(point=point).groupby(["point", "seed"])[[value, "round"]].mean()
    table = made[value].unstack()
    table.index = made["round"].groupby("point").mean()
    return table.dropna()


def _chance(study: Study, scenario: str, cluster: str, last: float) -> list[go.Scatter]:
    """A line at the share of the own cluster among all others, where the population is known."""
    frame = study.frames["population"]
    known = [row for row in frame[frame["scenario"] == scenario]["clusters"] if cluster in row]
    if not known:
        return []
    share = 100 * (known[0].count(cluster) - 1) / max(len(known[0]) - 1, 1)
    look = {"color": CHANCE, "dash": "dot", "width": 1.5}
    return [go.Scatter(x=[1, last], y=[share] * 2, name="by chance", mode="lines", line=look)]
