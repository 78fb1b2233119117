"""Figures as files for a paper (PDF, PNG), drawn with matplotlib from the same panels."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.report.figures import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
WIDTH, HEIGHT = 3.4, 2.5  # inches of a panel


def available() -> bool:
    """Whether matplotlib is installed."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def write_figure(panels: Sequence[Panel], stem: Path) -> list[Path]:
    """Draw panels, row by row, to STEM.pdf and STEM.png."""
    from matplotlib.figure import Figure

    rows = [
        [panel for panel in panels if panel.row == name]
        for name in dict.fromkeys(panel.row for panel in panels)
    ]
    if len(rows) == 1:  # no more than three side by side
        rows = [list(panels[i : i + 3]) for i in range(0, len(panels), 3)]
    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, line in zip(rows, axes, strict=True):
        for number, axis in enumerate(line):
            _panel(axis, row[number]) if number < len(row) else axis.set_visible(False)
    _legend(figure)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("pdf", "png")]
    for path in paths:
        figure.savefig(path, dpi=200)
    return paths


def _panel(axis: Axes, panel: Panel) -> None:
    layout = panel.figure.layout
    head = panel.title if panel.row in panel.title else f"{panel.row}\n{panel.title}"
    axis.set_title(_text(head), fontsize=8)
    axis.set_xlabel(_text(layout.xaxis.title.text or ""), fontsize=8)
    axis.set_ylabel(_text(layout.yaxis.title.text or ""), fontsize=8)
    axis.tick_params(which="both", labelsize=7)
    kinds = dict.fromkeys(trace.type for trace in panel.figure.data)
    for kind in kinds:
        DRAW[kind](axis, [trace for trace in panel.figure.data if trace.type == kind])
    if layout.yaxis.title.text == "nodes":
        axis.locator_params(axis="y", integer=True)
    ends = layout.yaxis.range
    if layout.yaxis.type == "log":  # a range in powers of ten
        axis.set_yscale("log")
        ends = None if ends is None else [10.0**end for end in ends]
    if ends:
        axis.set_ylim(*ends)


def _scatter(axis: Axes, traces: Sequence[Any]) -> None:
    floor: Any = 0.0
    for trace in traces:
        x, y = np.array(trace.x, float), np.array(trace.y, float)
        if trace.stackgroup:
            axis.fill_between(
                x, floor, floor + y, step="post", color=trace.fillcolor, label=_text(trace.name)
            )
            floor = floor + y
        elif trace.fill == "toself":
            axis.fill(x, y, color=_color(trace.fillcolor), linewidth=0)
        else:
            dash = DASHES.get(trace.line.dash or "solid", "-")
            dot = "o" if trace.mode == "markers" else ""
            axis.plot(
                x, y, dash, marker=dot, color=trace.line.color, lw=1.4, label=_text(trace.name)
            )


def _bars(axis: Axes, traces: Sequence[Any]) -> None:
    names = list(dict.fromkeys(name for trace in traces for name in trace.x))
    width = 0.8 / len(traces)
    for number, trace in enumerate(traces):
        at = [names.index(name) + (number - (len(traces) - 1) / 2) * width for name in trace.x]
        error = [trace.error_y.arrayminus, trace.error_y.array]
        axis.bar(at, trace.y, width, color=trace.marker.color, label=_text(trace.name))
        axis.errorbar(at, trace.y, error, fmt="none", ecolor="#606870", elinewidth=0.8, capsize=2)
    axis.set_xticks(range(len(names)), [_text(name) for name in names])


def _heat_map(axis: Axes, traces: Sequence[Any]) -> None:
    for trace in traces:
        counts = np.array(trace.z)
        if not trace.texttemplate:  # a map of colours, too fine for words
            _color_map(axis, trace, counts)
            continue
        axis.imshow(counts, cmap="Blues", aspect="auto", vmin=0, vmax=max(1, counts.max()) * 1.6)
        for (row, column), count in np.ndenumerate(counts):
            axis.text(column, row, str(count), ha="center", va="center", fontsize=8)
        axis.set_xticks(range(counts.shape[1]), [_text(name) for name in trace.x])
        axis.set_yticks(range(counts.shape[0]), [_text(name) for name in trace.y])


def _color_map(axis: Axes, trace: Any, numbers: Any) -> None:
    """Numbers as the colours that the trace has for them, nodes below one another."""
    from matplotlib.colors import to_rgba

    colors = np.array([to_rgba(_color(color)) for _, color in trace.colorscale[::2]])
    width = [trace.x[0] - 0.5, trace.x[-1] + 0.5]
    axis.imshow(
        colors[numbers], aspect="auto", interpolation="nearest", extent=(*width, len(numbers), 0)
    )


DRAW: dict[str, Callable[[Axes, Sequence[Any]], None]] = {
    "scatter": _scatter,
    "bar": _bars,
    "heatmap": _heat_map,
}


def _legend(figure: Figure) -> None:
    """One legend below all panels, every name once."""
    known: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            known.setdefault(str(name), handle)
    if known:
        look = {"ncols": min(len(known), 4), "fontsize": 7, "frameon": False}
        figure.legend(list(known.values()), list(known), loc="outside lower center", **look)


def _color(text: str) -> Any:
    """rgba(r,g,b,a) as matplotlib has it; other colours as they are."""
    if not text.startswith("rgba("):
        return text
    red, green, blue, alpha = (float(part) for part in text[5:-1].split(","))
    return red / 255, green / 255, blue / 255, alpha


def _text(text: str) -> str:
    """Text as it is, not as formulas or markup."""
    return html.unescape(text).replace("$", r"\$")
