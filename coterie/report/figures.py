"""Interactive figures, as small panels that a page lays out side by side."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from coterie.metrics.traffic import unit
from coterie.report.records import Study
from coterie.report.summarize import aggregate
from coterie.report.tables import shown

# The thesis's colours for its four algorithms; the rest from sets made for colour-blind readers.
KNOWN = {
    "facade": "#E34234",
    "epidemic": "#009B95",
    "deprl": "#00BFFF",
    **dict.fromkeys(("dac", "dac-thesis"), "#E69F00"),
}
OTHERS = ("#7B5EA7", "#CC79A7", "#0072B2", "#8C8C3A", "#A0522D", "#6E7B8B", "#B5BD00", "#117733")
HEADS = ("#4477AA", "#DDAA33", "#AA3377", "#66CCEE", "#228833", "#EE6677", "#999999")
DASHES = ("solid", "dash", "dot", "dashdot")
POINTS = 300  # more than a panel can show
SEEDS = 4  # seeds whose choices can be looked at


@dataclass(frozen=True)
class Panel:
    """A figure with its title, and the row of panels it stands in."""

    title: str
    figure: go.Figure
    row: str = ""
    wide: bool = False  # as wide as the page, and as high as its figure


@dataclass(frozen=True)
class Look:
    """How the lines and bars of one label are drawn."""

    label: str
    name: str
    color: str
    dash: str


def looks(study: Study) -> dict[str, Look]:
    """A colour for each label: its algorithm's, where that has one which no other label took."""
    found: dict[str, Look] = {}
    first = {result["label"]: result for result in reversed(study.results)}
    spare, used = count(), set()
    for label in study.order:
        color, dash = KNOWN.get(first[label]["algorithm"]), 0
        if color is None or color in used:
            dash, index = divmod(next(spare), len(OTHERS))
            color = OTHERS[index]
        used.add(color)
        found[label] = Look(label, plain(shown(first[label])), color, DASHES[dash % len(DASHES)])
    return found


def accuracy_over_rounds(study: Study) -> list[Panel]:
    """One panel for each scenario and cluster: every label's mean over seeds, ±1 std as a band."""
    frame = study.frames["cluster"]
    panels = []
    for scenario, metric in scenarios(study):
        rows = frame[frame["scenario"] == scenario]
        for cluster in [c for c in study.clusters if c in set(rows["cluster"])]:
            here = rows[rows["cluster"] == cluster]
            title = f"{scenario} · {cluster}{_size(here)}"
            panel = _curves(study, here, scenario, metric, title)
            panels.append(replace(panel, row=scenario))
    return _share_range([panel for panel in panels if panel.figure.data])


def fair_accuracy_over_rounds(study: Study) -> list[Panel]:
    """One panel for each scenario: every label's fair accuracy, ±1 std as a band."""
    frame = study.frames["overall"]
    panels = [
        _curves(study, frame[frame["scenario"] == scenario], scenario, "fair_accuracy", scenario)
        for scenario, metric in scenarios(study)
        if metric == "accuracy"
    ]
    return _share_range([panel for panel in panels if panel.figure.data])


def accuracy_over_bytes(study: Study) -> list[Panel]:
    """One panel for each scenario: accuracy over all nodes against what a node has sent.

    The final all-reduce is left out: it is not part of training's traffic.
    """
    frame = study.frames["overall"]
    frame = frame[frame["phase"] != "final"]
    size, name = unit(float(frame["bytes"].max()) if frame["bytes"].notna().any() else 0.0)
    sent = frame.assign(sent=frame["bytes"] / size)
    panels = []
    for scenario, metric in scenarios(study):
        panel = _curves(
            study, sent[sent["scenario"] == scenario], scenario, metric, scenario, "sent"
        )
        panel.figure.update_xaxes(title=f"{name} sent by a node")
        panels.append(panel)
    return _share_range([panel for panel in panels if panel.figure.data])


def fairness_bars(study: Study) -> list[Panel]:
    """Demographic parity and equalized odds of each scenario, mean and std over seeds."""
    titles = {"demographic_parity": "Demographic parity", "equalized_odds": "Equalized odds"}
    panels = [_bars(study, key, f"{title} (0 is fair)") for key, title in titles.items()]
    return [panel for panel in panels if panel.figure.data]


def choice_timelines(study: Study) -> list[Panel]:
    """For each result and cluster: how many of its nodes preferred each head, over rounds."""
    panels = []
    for result, rounds, choices, clusters in _choices(study):
        heads, word = int(choices.max()) + 1, result.get("chosen", "head")
        for cluster in clusters_of(study, clusters):
            chosen = choices[:, clusters == cluster]
            counts = np.stack([(chosen == head).sum(axis=1) for head in range(heads)])
            title = f"{cluster}: nodes preferring each {word}"
            panels.append(Panel(title, _stack(rounds, counts, word), result_name(result)))
    return panels


def choice_matrices(study: Study) -> list[Panel]:
    """For each result: how many nodes of each cluster preferred each head in the end."""
    panels = []
    for result, _, choices, clusters in _choices(study):
        word = result.get("chosen", "head")
        names, heads = clusters_of(study, clusters), range(int(choices.max()) + 1)
        last = choices[-1]
        counts = [[int(((last == h) & (clusters == c)).sum()) for h in heads] for c in names]
        figure = _heat_map(names, counts, word)
        panels.append(Panel(f"In the end: cluster and {word}", figure, result_name(result)))
    return panels


def without(study: Study, labels: Collection[str]) -> Study:
    """The study without the choices of these labels."""
    choice = study.frames["choice"]
    kept = choice[~choice["label"].isin(list(labels))]
    return replace(study, frames={**study.frames, "choice": kept})


def scenarios(study: Study) -> list[tuple[str, str]]:
    """Each scenario with its metric, in order of appearance."""
    return list(dict.fromkeys((r["scenario"], r["metric"]) for r in study.results))


def plain(text: str) -> str:
    """Text that plotly shows as it is, not as markup."""
    return html.escape(text, quote=False)


def thin(values: NDArray[Any], points: int = POINTS) -> NDArray[Any]:
    """At most so many entries, evenly spaced, the first and last among them."""
    if len(values) <= points:
        return values
    kept: NDArray[Any] = values[np.linspace(0, len(values) - 1, points).round().astype(int)]
    return kept


def mean_and_std(rows: pd.DataFrame, value: str, along: str) -> pd.DataFrame:
    """The mean and std (ddof 0) over seeds at each evaluation; `x` is where it stands."""
    there = rows[rows[value].notna() & rows[along].notna()]
    groups = there.groupby(["round", there["phase"] == "final"])  # the all-reduce after its round
    found = pd.DataFrame(
        {"x": groups[along].mean(), "mean": groups[value].mean(), "std": groups[value].std(ddof=0)}
    )
    return found.reset_index(drop=True)


def _curves(
    study: Study,
    rows: pd.DataFrame,
    scenario: str,
    metric: str,
    title: str,
    along: str = "round",
) -> Panel:
    value = "loss" if metric == "mse" else metric
    figure = canvas("rounds", "MSE" if metric == "mse" else "%")
    there = {r["label"] for r in study.results if r["scenario"] == scenario}
    for label, look in looks(study).items():
        curve = mean_and_std(rows[rows["label"] == label], value, along)
        if label in there and len(curve):
            figure.add_traces(list(_lines(look, curve)))
    return Panel(title, figure)


def _lines(look: Look, curve: pd.DataFrame) -> Iterator[go.Scatter]:
    x, mean, std = thin(curve[["x", "mean", "std"]].to_numpy()).T
    yield from band(look, x, mean, mean - std, mean + std)


def band(
    look: Look, x: NDArray[Any], middle: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> Iterator[go.Scatter]:
    """A line and, where there is any, the band about it."""
    if (high > low).any():
        yield go.Scatter(
            x=_short(np.concatenate([x, x[::-1]])),
            y=_short(np.concatenate([high, low[::-1]])),
            fill="toself",
            fillcolor=_faint(look.color),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            meta=look.label,
        )
    yield go.Scatter(
        x=_short(x),
        y=_short(middle),
        name=look.name,
        mode="lines" if len(x) > 1 else "markers",
        line={"color": look.color, "dash": look.dash, "width": 2},
        meta=look.label,
    )


def _bars(study: Study, key: str, title: str) -> Panel:
    spreads = aggregate(study.results)
    figure = canvas("", "")
    for label, look in looks(study).items():
        found = {
            s: keys[key] for s, keys in spreads[label].items() if keys[key]["mean"] is not None
        }
        if found:
            figure.add_trace(_bar(look, found))
    figure.update_xaxes(type="category", title=None)
    figure.update_layout(hovermode="closest")
    return Panel(title, figure)


def _bar(look: Look, found: Mapping[str, Mapping[str, Any]]) -> go.Bar:
    means = [spread["mean"] for spread in found.values()]
    stds = [spread["std"] or 0 for spread in found.values()]
    below = [min(mean, std) for mean, std in zip(means, stds, strict=True)]
    return go.Bar(
        x=[plain(scenario) for scenario in found],
        y=_short(np.array(means)),
        error_y={
            "array": _short(np.array(stds)),
            "arrayminus": _short(np.array(below)),
            "color": "#808890",
        },
        name=look.name,
        marker={"color": look.color},
        meta=look.label,
    )


def _choices(
    study: Study,
) -> Iterator[tuple[Mapping[str, Any], NDArray[np.int64], NDArray[np.int64], NDArray[np.str_]]]:
    """Result, rounds `[r]`, choices `[r, nodes]` and clusters `[nodes]` of the first seeds."""
    frame = study.frames["choice"]
    usable = frame["choice"].map(len).eq(frame["clusters"].map(len)) & frame["round"].notna()
    frame = frame[usable & frame["choice"].map(bool)]
    seen: Counter[tuple[str, str]] = Counter()
    for result in study.results:
        label, scenario = where = result["label"], result["scenario"]
        rows = frame[(frame["label"] == label) & (frame["scenario"] == scenario)]
        rows = rows[rows["seed"] == result["seed"]]
        if len(rows) and seen[where] < SEEDS:
            seen[where] += 1
            yield (result, *_until(rows, result["rounds"]))


def result_name(result: Mapping[str, Any]) -> str:
    """What one seed's panels are headed with."""
    ending = {True: " · settled", False: " · not settled", None: ""}[result["settled"]]
    return f"{shown(result)} · {result['scenario']} · seed {result['seed']}{ending}"


def _until(
    rows: pd.DataFrame, last: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.str_]]:
    """The choices, the last of them held to the end of the run."""
    rounds = rows["round"].to_numpy().astype(np.int64)
    choices = np.array(rows["choice"].tolist(), np.int64)
    clusters = np.array([str(name) for name in rows["clusters"].iloc[0]])
    if rounds[-1] < last:
        rounds, choices = np.append(rounds, last), np.concatenate([choices, choices[-1:]])
    return thin(rounds), thin(choices), clusters


def clusters_of(study: Study, clusters: NDArray[np.str_]) -> list[str]:
    """The clusters that occur, the largest first."""
    there = set(clusters.tolist())
    return [name for name in study.clusters if name in there] + sorted(there - set(study.clusters))


def _stack(rounds: NDArray[np.int64], counts: NDArray[np.int64], word: str) -> go.Figure:
    figure = canvas("rounds", "nodes")
    for head, row in enumerate(counts):
        color = HEADS[head % len(HEADS)]
        figure.add_trace(
            go.Scatter(
                x=rounds.tolist(),
                y=row.tolist(),
                name=f"{word} {head}",
                stackgroup="heads",
                fillcolor=color,
                line={"shape": "hv", "width": 0, "color": color},
            )
        )
    top = int(counts.sum(axis=0).max())
    figure.update_yaxes(range=[0, top], dtick=max(1, -(-top // 5)))
    return figure


def _heat_map(names: Sequence[str], counts: Sequence[Sequence[int]], word: str) -> go.Figure:
    figure = canvas("", "")
    figure.add_trace(
        go.Heatmap(
            z=counts,
            x=[f"{word} {head}" for head in range(len(counts[0]))],
            y=[plain(name) for name in names],
            text=counts,
            texttemplate="%{text}",
            colorscale=[[0, "#B9CDE0"], [1, "#2F5F8F"]],
            showscale=False,
            hovertemplate="%{z} nodes of %{y} prefer %{x}<extra></extra>",
            xgap=3,
            ygap=3,
        )
    )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="category")
    return figure


def canvas(x: str, y: str) -> go.Figure:
    """An empty figure with these axes."""
    return go.Figure(
        layout={
            "template": "none",
            "margin": {"l": 48, "r": 12, "t": 16, "b": 44},
            "hovermode": "x unified",
            "hoverlabel": {"namelength": -1},
            "xaxis": {"title": x, "zeroline": False, "automargin": True},
            "yaxis": {"title": y, "zeroline": False, "automargin": True},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        }
    )


def _share_range(panels: list[Panel]) -> list[Panel]:
    """The same vertical range for all panels of one unit, so that they compare at a glance."""
    for name in {panel.figure.layout.yaxis.title.text for panel in panels}:
        same = [p.figure for p in panels if p.figure.layout.yaxis.title.text == name]
        values = np.concatenate([np.array(trace.y, float) for f in same for trace in f.data])
        low, high = float(values.min()), float(values.max())
        pad = 0.05 * (high - low) or 1.0
        for figure in same:
            figure.update_yaxes(range=[low - pad, high + pad])
    return panels


def _size(rows: pd.DataFrame) -> str:
    nodes = rows["nodes"].max()
    return "" if pd.isna(nodes) else f" ({int(nodes)} node{'s' if nodes != 1 else ''})"


def _short(values: NDArray[Any]) -> list[float]:
    """Numbers with five digits, which is all a figure can show."""
    return [float(f"{value:.5g}") for value in values]


def _faint(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
