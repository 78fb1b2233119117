"""The heads from close by: what each cluster's nodes chose, and how well each head did for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from coterie.report import figures
from coterie.report.figures import HEADS, Look, Panel
from coterie.report.records import Study

RANKS = ("most chosen head", "second", "third", "fourth", "fifth")


@dataclass(frozen=True)
class History:
    """The choices of one seed: who chose what, from which round on."""

    seed: int
    rounds: NDArray[np.int64]  # [r], ascending
    choices: NDArray[np.int64]  # [r, nodes]
    clusters: NDArray[np.str_]  # [nodes]

    def at(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The choices in these rounds, each held until the next one is recorded."""
        index = np.searchsorted(self.rounds, rounds, side="right") - 1
        held: NDArray[np.int64] = self.choices[index.clip(0)]
        return held


def histories(study: Study, label: str, scenario: str) -> list[History]:
    """The choices of every seed of a label on a scenario."""
    frame = study.frames["choice"]
    frame = frame[(frame["label"] == label) & (frame["scenario"] == scenario)]
    usable = frame["choice"].map(len).eq(frame["clusters"].map(len)) & frame["round"].notna()
    frame = frame[usable & frame["choice"].map(bool)]
    return [_history(rows) for _, rows in frame.groupby("seed")]


def _history(rows: pd.DataFrame) -> History:
    return History(
        int(rows["seed"].iloc[0]),
        rows["round"].to_numpy().astype(np.int64),
        np.array(rows["choice"].tolist(), np.int64),
        np.array([str(name) for name in rows["clusters"].iloc[0]]),
    )


def drawn_rounds(study: Study, label: str, scenario: str) -> NDArray[np.int64]:
    """The rounds at which curves over all seeds are drawn."""
    where = label, scenario
    last = max(r["rounds"] for r in study.results if (r["label"], r["scenario"]) == where)
    return figures.thin(np.arange(1, last + 1))


def head_shares(study: Study) -> list[Panel]:
    """Per label, scenario and cluster: the share of nodes at each head, mean over seeds.

    Heads have no order of their own: each cluster's are ranked by its nodes in the last round.
    """
    panels = []
    for label, scenario in dict.fromkeys((r["label"], r["scenario"]) for r in study.results):
        found = histories(study, label, scenario)
        if found:
            name = f"{label} · {scenario} · {len(found)} seed{'s' if len(found) > 1 else ''}"
            rounds = drawn_rounds(study, label, scenario)
            for cluster in figures.clusters_of(study, found[0].clusters):
                panels.append(Panel(cluster, _shares(found, rounds, cluster), name))
    return panels


def _shares(found: list[History], rounds: NDArray[np.int64], cluster: str) -> go.Figure:
    heads = max(int(history.choices.max()) for history in found) + 1
    shares = np.mean([_ranked(h, rounds, cluster, heads) for h in found], axis=0)  # [k, r]
    figure = figures.canvas("rounds", "% of the nodes")
    for rank, row in enumerate(shares):
        figure.add_trace(
            go.Scatter(
                x=rounds.tolist(),
                y=[round(100 * float(share), 2) for share in row],
                name=RANKS[rank] if rank < len(RANKS) else f"number {rank + 1}",
                stackgroup="heads",
                fillcolor=HEADS[rank % len(HEADS)],
                line={"shape": "hv", "width": 0, "color": HEADS[rank % len(HEADS)]},
            )
        )
    figure.update_yaxes(range=[0, 100])
    return figure


def _ranked(
    history: History, rounds: NDArray[np.int64], cluster: str, heads: int
) -> NDArray[np.float64]:
    """The share of a cluster's nodes at each head by round, first the head of most: [k, r]."""
    chosen = history.at(rounds)[:, history.clusters == cluster]  # [r, nodes of the cluster]
    shares = np.stack([(chosen == head).mean(axis=1) for head in range(heads)])
    ranked: NDArray[np.float64] = shares[np.argsort(-shares[:, -1], kind="stable")]
    return ranked


def head_losses(study: Study) -> list[Panel]:
    """Per seed and cluster: the train loss of every head, mean ± std over the cluster's nodes."""
    frame = study.frames["head"]
    panels = []
    for result in study.results:
        rows = _of(frame, result)
        names = np.array(sorted(set(rows["cluster"])))
        for cluster in figures.clusters_of(study, names):
            losses = _losses(rows[rows["cluster"] == cluster])
            panels.append(Panel(cluster, losses, figures.result_name(result)))
    return panels


def _of(frame: pd.DataFrame, result: Mapping[str, Any]) -> pd.DataFrame:
    for key in ("label", "scenario", "seed"):
        frame = frame[frame[key] == result[key]]
    return frame


def _losses(rows: pd.DataFrame) -> go.Figure:
    figure = figures.canvas("rounds", "train loss")
    for head, line in rows.groupby("head"):
        number = int(str(head).removesuffix(".0"))
        look = Look(f"head {number}", f"head {number}", HEADS[number % len(HEADS)], "solid")
        x, loss, std = figures.thin(line[["round", "loss", "std"]].to_numpy()).T
        figure.add_traces(list(figures.band(look, x, loss, loss - std, loss + std)))
    return figure
