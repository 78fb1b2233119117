"""The figures of an experiment: its `[[figure]]` tables as panels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from coterie.report import domains, figures
from coterie.report.family import family_panels
from coterie.report.figures import HEADS, Look, Panel
from coterie.report.heads import head_losses, head_shares
from coterie.report.picks import competitive_over_rounds, picked_over_rounds
from coterie.report.records import Study
from coterie.report.settling import settlement_rates
from coterie.reproduce.experiment import FigureTable, Kind


def panels_of(figure: FigureTable, study: Study) -> list[Panel]:
    """The panels of a figure; none where no record fits it."""
    return KINDS[figure.kind](part_of(study, figure))


def part_of(study: Study, figure: FigureTable) -> Study:
    """The results and records that a figure shows."""
    results = []
    taken: Counter[tuple[str, str]] = Counter()
    for result in study.results:
        where = result["label"], result["scenario"]
        fits = figure.settled in (None, result["settled"])
        room = not figure.seeds or taken[where] < figure.seeds
        if _among(where[0], figure.labels) and _among(where[1], figure.scenarios) and fits and room:
            taken[where] += 1
            results.append(result)
    kept = {(r["label"], r["scenario"], float(r["seed"])) for r in results}
    frames = {kind: _kept(frame, kept) for kind, frame in study.frames.items()}
    order = [label for label in study.order if label in {r["label"] for r in results}]
    return replace(study, results=results, order=order, frames=frames)


def _among(name: str, names: tuple[str, ...]) -> bool:
    return not names or name in names


def _kept(frame: pd.DataFrame, kept: set[tuple[str, str, float]]) -> pd.DataFrame:
    if "label" not in frame:
        return frame
    keys = zip(frame["label"], frame["scenario"], frame["seed"], strict=True)
    return frame[np.array([key in kept for key in keys], bool)]


def gaps(study: Study) -> list[Panel]:
    """One panel for each label and scenario: every cluster's accuracy, the gap filled."""
    frame = study.frames["cluster"]
    panels = []
    for label, scenario in dict.fromkeys((r["label"], r["scenario"]) for r in study.results):
        rows = frame[(frame["label"] == label) & (frame["scenario"] == scenario)]
        names = figures.clusters_of(study, np.array(sorted(set(rows["cluster"]))))
        curves = {
            name: figures.mean_and_std(rows[rows["cluster"] == name], "accuracy", "round")
            for name in names
        }
        panels.append(Panel(f"{label} · {scenario}", _gap(curves)))
    return panels


def _gap(curves: dict[str, pd.DataFrame]) -> go.Figure:
    figure = figures.canvas("rounds", "%")
    if len(curves) > 1:
        means = pd.concat(curves.values()).groupby("x", as_index=False)["mean"]
        outline = pd.concat([means.max(), means.min().iloc[::-1]])  # the best, back by the worst
        figure.add_trace(_filled(outline))
    for number, (name, curve) in enumerate(curves.items()):
        look = Look(name, figures.plain(name), HEADS[number % len(HEADS)], "solid")
        x, mean, std = figures.thin(curve[["x", "mean", "std"]].to_numpy()).T
        figure.add_traces(list(figures.band(look, x, mean, mean - std, mean + std)))
    return figure


def _filled(outline: pd.DataFrame) -> go.Scatter:
    return go.Scatter(
        x=outline["x"].tolist(),
        y=outline["mean"].tolist(),
        name="accuracy gap",
        fill="toself",
        fillcolor="rgba(128,136,144,0.22)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
    )


KINDS: dict[Kind, Callable[[Study], list[Panel]]] = {
    "accuracy": figures.accuracy_over_rounds,
    "fair": figures.fair_accuracy_over_rounds,
    "fairness": figures.fairness_bars,
    "bytes": figures.accuracy_over_bytes,
    "gap": gaps,
    "heads": head_losses,
    "choices": figures.choice_timelines,
    "matrix": figures.choice_matrices,
    "rate": settlement_rates,
    "shares": head_shares,
    "family": family_panels,
    "picked": picked_over_rounds,
    "competitive": competitive_over_rounds,
    "domains": domains.domain_shares,
    "entropy": domains.entropies,
    "lambda": domains.scales,
}
KEYED: set[Kind] = {  # their lines are no labels
    *("gap", "heads", "choices", "shares", "family", "domains", "lambda"),
}
NOTES: dict[Kind, str] = {
    "accuracy": "Mean over seeds; the band is one standard deviation either side.",
    "fair": "Mean over seeds; the band is one standard deviation either side.",
    "fairness": "Mean over seeds, 0 is fair; whiskers: one standard deviation.",
    "bytes": "Mean over all nodes against what a node has sent; the all-reduce is left out.",
    "gap": "Mean over seeds; the band is one standard deviation, the grey area the gap.",
    "heads": "Train loss of every head: mean over a cluster's nodes, ± one standard deviation.",
    "choices": "How many nodes of each cluster prefer each head.",
    "matrix": "How many nodes of each cluster prefer each head in the end.",
    "rate": "Share of seeds that are settled in a round, with 95% intervals (Wilson); not those "
    "that started again.",
    "shares": "Share of a cluster's nodes at each head, mean over seeds; a cluster's heads are "
    "ranked by their nodes in the last round.",
    "family": "Who follows which model: a colour is a camp; a model has the colour of those from "
    "whom most of its followers come.",
    "domains": "Share of the samples in each domain, mean over seeds; each seed's domains are "
    "ranked by their samples.",
    "entropy": "Of the domains' shares: 0 where one has all samples, log D where all are even.",
    "lambda": "How much the branches of each layer count; mean over seeds, ± one deviation.",
    "picked": "Of the peers with whom nodes averaged, those of their own cluster; mean over seeds, "
    "the band is one standard deviation, the dotted line what chance gives.",
    "competitive": "Groups that the bandit of a node in the middle can still draw: the mean over "
    "seeds of the median over nodes; the band goes from the lowest to the highest seed.",
}
