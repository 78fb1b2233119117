"""The family of models: who followed which, round by round; forks, mergers and extinctions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from coterie.metrics.family import Model, Turn, camps, followed, timetable, turns
from coterie.report.figures import SEEDS, Panel, canvas, plain, result_name
from coterie.report.records import Study

# Far enough apart to be told from their neighbors; a camp keeps its colour while it lives.
COLORS = (
    *("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#E07B39", "#7B5EA7"),
    *("#009988", "#BB5566", "#997700", "#6699CC", "#994455", "#44AA77", "#D4A6C8", "#8C6D46"),
    *("#1B7837", "#C2A5CF", "#35618F", "#F4A582", "#5AAE61", "#9970AB", "#B2ABD2", "#80807A"),
)
NONE = "rgba(0,0,0,0)"
EVENTS = {"forks": "#CCBB44", "mergers": "#AA3377", "extinct": "#999999"}
LINE = 11  # pixels of a node


def family_panels(study: Study) -> list[Panel]:
    """For the first seeds of each label: who follows which model, how many live, what happened."""
    panels = []
    for name, models, clusters in _families(study):
        happened = turns(models, len(clusters))
        followers = _followers(models, clusters)
        panels.append(Panel("Who follows which model", followers, name, wide=True))
        panels.append(Panel("Models alive", _alive(happened), name))
        panels.append(Panel("Forks, mergers, extinct models", _events(happened), name))
    return panels


def labels(study: Study) -> set[str]:
    """The labels that have a family of models."""
    return set(study.frames["model"]["label"])


def _families(study: Study) -> Iterator[tuple[str, list[Model], list[str]]]:
    """Name, models and every node's cluster of the first seeds."""
    seen: Counter[tuple[str, str]] = Counter()
    frame, population = study.frames["model"], study.frames["population"]
    for result in study.results:
        where = result["label"], result["scenario"]
        whole = frame["born"].notna() & frame["popularity"].notna()
        rows = _of(frame[whole & (frame["label"] == where[0])], result)
        people = _of(population, result)["clusters"]
        if len(rows) and len(people) and seen[where] < SEEDS:
            seen[where] += 1
            models = [Model.of(row) for _, row in rows.iterrows()]
            yield result_name(result), models, list(people.iloc[-1])


def _of(frame: pd.DataFrame, result: Mapping[str, Any]) -> pd.DataFrame:
    here = (frame["scenario"] == result["scenario"]) & (frame["seed"] == result["seed"])
    found: pd.DataFrame = frame[here]
    return found


def _followers(models: Sequence[Model], clusters: Sequence[str]) -> go.Figure:
    """A map of nodes and rounds whose colours are camps; nodes that end together are close."""
    table, rounds = timetable(models, len(clusters))
    order = _order(table, clusters)
    colors = _colors(table)
    shown = np.array([colors.get(int(c), len(COLORS)) for c in table.ravel()]).reshape(table.shape)
    palette = [*COLORS, NONE]
    steps = [
        [edge / len(palette), color]
        for number, color in enumerate(palette)
        for edge in (number, number + 1)
    ]
    figure = canvas("rounds", "")
    figure.add_trace(
        go.Heatmap(
            z=shown[order].tolist(),
            x=rounds,
            y=[plain(f"{clusters[node]} · {node}") for node in order],
            zmin=-0.5,
            zmax=len(palette) - 0.5,
            colorscale=steps,
            showscale=False,
            text=_words(models, order, rounds, len(clusters)),
            hovertemplate="node %{y}, round %{x}<br>%{text}<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest", height=max(260, LINE * len(clusters) + 80))
    figure.update_yaxes(autorange="reversed", type="category", tickfont={"size": 8}, dtick=1)
    return figure


def _order(table: NDArray[np.int64], clusters: Sequence[str]) -> list[int]:
    """Nodes by cluster, then by what they follow in the end and before."""
    keys = [(clusters[node], *table[node, ::-1].tolist(), node) for node in range(len(clusters))]
    return sorted(range(len(clusters)), key=lambda node: keys[node])


def _colors(table: NDArray[np.int64]) -> dict[int, int]:
    """A colour for each camp that no other camp has while both live, as far as they reach."""
    found: dict[int, int] = {}
    for column in table.T:
        here = [int(camp) for camp in np.unique(column) if camp >= 0]
        used = {found[camp] for camp in here if camp in found}
        free = iter([color for color in range(len(COLORS)) if color not in used])
        for camp in here:
            if camp not in found:
                found[camp] = next(free, camp % len(COLORS))
    return found


def _words(
    models: Sequence[Model], order: Sequence[int], rounds: Sequence[int], nodes: int
) -> list[list[str]]:
    follows, numbers = followed(models, nodes), camps(models, nodes)

    def told(model: Model | None) -> str:
        if model is None:
            return "follows none"
        return (
            f"{plain(model.id[:8])} of {plain(model.parent[:8])}, camp {numbers[model.id]}, "
            f"{len(model.followers)} followers, popularity {model.popularity:g}"
        )

    return [[told(follows[t].get(node)) for t in rounds] for node in order]


def _alive(happened: Sequence[Turn]) -> go.Figure:
    figure = canvas("rounds", "models")
    x, y = [turn.round for turn in happened], [turn.alive for turn in happened]
    line = {"shape": "hv", "color": "#4477AA", "width": 2}
    figure.add_trace(go.Scatter(x=x, y=y, name="alive", mode="lines", line=line))
    figure.update_yaxes(rangemode="tozero")
    return figure


def _events(happened: Sequence[Turn]) -> go.Figure:
    """The first round is left out: there everything is new."""
    figure = canvas("rounds", "models")
    for name, color in EVENTS.items():
        x = [turn.round for turn in happened[1:]]
        y = [getattr(turn, name) for turn in happened[1:]]
        line = {"color": color, "width": 1.5}
        figure.add_trace(go.Scatter(x=x, y=y, name=name, mode="lines", line=line))
    figure.update_yaxes(rangemode="tozero")
    return figure
