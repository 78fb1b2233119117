"""What a run shows in a terminal: how far it is, and its results."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console()
FIRST, QUIET = 10.0, 60.0  # seconds that a log may be silent: before its first line, between lines
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def say(text: str, console: Console = console, style: str = "") -> None:
    """A line as it is, never broken: names and commands in it can be copied."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class Display:
    """Round, accuracy per cluster and time left, as a bar or, in a log, as lines.

    Ctrl-C or SIGTERM asks for a stop after the round, and so does the end of the time given.
    """

    def __init__(self, minutes: float = math.inf) -> None:
        self.asked = 0  # the number of the signal that asked for a stop; 0: none did
        self.deadline = time.monotonic() + 60 * minutes
        self.task: TaskID | None = None
        self.rounds, self.first, self.done, self.name = 0, 0, 0, ""
        self.started = self.last = time.monotonic()  # of the part, and of its last line
        self.progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.completed}/{task.total}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[accuracy]}"),
            console=console,
        )

    def __enter__(self) -> Display:
        self.before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        if self.task is not None:
            self.progress.stop()
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @property
    def code(self) -> int:
        """The exit code: 0, or that of a signal."""
        return 128 + self.asked if self.asked else 0

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = number
        # past the console, whose modules may be in the middle of an import
        os.write(2, b"stopping after this round (again: at once)\n")

    def watch(self) -> Any:
        """The callbacks for the run."""
        from coterie.part import Watch

        return Watch(
            plan=say,
            early=say,
            part=self._part,
            round=self._round,
            accuracy=self._accuracy,
            stop=self.over,
        )

    def over(self) -> bool:
        """Whether a stop was asked for, or the time is over."""
        return self.asked > 0 or time.monotonic() > self.deadline

    def _part(self, name: str, done: int, rounds: int) -> None:
        self.name, self.first, self.done, self.rounds = name, done, done, rounds
        self.started = self.last = time.monotonic()
        if console.is_terminal:
            self.progress.start()
            self.task = self.progress.add_task(name, total=rounds, completed=done, accuracy="")

    def _round(self, done: int) -> None:
        self.done = done
        if self.task is not None:
            self.progress.update(self.task, completed=done)
        elif time.monotonic() - self.last > (FIRST if self.last == self.started else QUIET):
            self._tell("")

    def _accuracy(self, clusters: dict[str, float]) -> None:
        shown = "  ".join(f"{name} {value:.1f}" for name, value in clusters.items())
        if self.task is not None:
            self.progress.update(self.task, accuracy=shown)
        else:
            self._tell(f"{shown}  ")

    def _tell(self, shown: str) -> None:
        """A line of a log: how far, and how long it takes if rounds go on as they did."""
        self.last = time.monotonic()
        spent = (self.last - self.started) / max(self.done - self.first, 1)
        left = f"{spent * (self.rounds - self.done):.0f} s left"
        say(f"{self.name}: round {self.done}/{self.rounds}  {shown}{left}")


def print_results(summary: dict[str, Any]) -> None:
    """The results, as many columns as the terminal is wide; report.html and tables/ have all."""
    from coterie.report.summarize import diverged, newcomers

    marks = {r["label"]: "*" if r["oracle"] else "" for r in summary["results"]}
    grid = _grid(summary, marks)
    dropped = _without_room(grid, summary["clusters"], console.width)
    console.print()
    _print_grid({name: cells for name, cells in grid.items() if name not in dropped})
    seeds = len({result["seed"] for result in summary["results"]})
    text = f"mean ± population standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    console.print(text, style="dim", highlight=False)
    if again := sum(1 for result in summary["results"] if result.get("restarts")):
        say(
            f"settled: {again} of these runs started again with another seed, and do not count",
            style="dim",
        )
    if told := diverged(summary["results"]):
        say(told, style="yellow")
    if told := newcomers(summary["results"]):
        say(told, style="dim")
    if any(marks.values()):
        console.print("* (knows the clusters): for reference only", style="dim", highlight=False)
    if dropped:
        say(f"no room here for: {', '.join(dropped)}; the report has all columns", style="dim")


def _grid(summary: dict[str, Any], marks: dict[str, str]) -> dict[str, list[str]]:
    """The printed table: the cells of every column."""
    shown = _columns(summary)
    grid: dict[str, list[str]] = {name: [] for name in ("algorithm", "nodes", *shown)}
    for label in summary["order"]:
        for scenario, values in summary["aggregate"].get(label, {}).items():
            numbers = [_cell(name, values.get(key)) for name, key in shown.items()]
            row = [label + marks[label], scenario, *numbers]
            for cells, cell in zip(grid.values(), row, strict=True):
                cells.append(cell)
    return grid


def _without_room(grid: dict[str, list[str]], clusters: Sequence[str], room: int) -> list[str]:
    """The columns that are left out, the least important first, so that no number is cut."""
    between = [shown for name in clusters[-2:0:-1] for shown in (f"{name} %", name)]
    one = ["nodes"] if len(set(grid["nodes"])) < 2 else []  # the same in every row
    least = ["server", "odds", "sent", *one, "settled", "unseen %", "unseen", "fair %", *between]
    kept = dict(grid)
    dropped: list[str] = []
    for name in least:
        if name in kept and _width(kept) > room:
            dropped.append(name)
            del kept[name]
    return dropped


def _width(grid: dict[str, list[str]]) -> int:
    """Of all columns side by side, a space between them."""
    widest = [max(map(cell_len, (name, *cells))) for name, cells in grid.items()]
    return sum(widest) + len(widest) - 1


def _print_grid(grid: dict[str, list[str]]) -> None:
    """Columns side by side, each as wide as it is: what is too long goes on in the next line."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=_width(grid))
    for name in grid:
        left = name in ("algorithm", "nodes")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in zip(*grid.values(), strict=True):
        table.add_row(*row)
    console.print(table, soft_wrap=True)


def _columns(summary: dict[str, Any]) -> dict[str, str]:
    """The columns of the printed table: shown name -> key of the aggregate."""
    accuracy = any(result["accuracy"] for result in summary["results"])
    kind = "accuracy" if accuracy else "mse"
    unit = " %" if accuracy else ""
    several = len(summary["clusters"]) > 1  # one cluster is all
    columns = {name + unit: f"{kind}:{name}" for name in summary["clusters"] if several}
    columns["all" + unit] = f"{kind}_all"
    if any(result.get("unseen") for result in summary["results"]):
        columns["unseen" + unit] = f"unseen_{kind}_all"
    if any(result.get("rounds_to_target") for result in summary["results"]):
        columns["rounds"] = "rounds_to_target"
    if accuracy and several:
        columns |= {"fair %": "fair_accuracy", "odds": "equalized_odds"}
    if any(result["settled"] is not None for result in summary["results"]):
        columns["settled"] = "settled"
    columns["sent"] = "bytes_per_node"
    if any(result.get("server_bytes") is not None for result in summary["results"]):
        columns["server"] = "server_bytes"
    return columns


def _cell(name: str, value: dict[str, Any] | None) -> str:
    from coterie.metrics.traffic import format_bytes

    if value is None or value["mean"] is None:
        return "–"
    mean = value["mean"]
    if name in ("sent", "server"):
        return format_bytes(mean)
    if name == "settled":
        return f"{mean:.0%}"
    if name == "odds":
        return f"{mean:.3f}"
    if "%" not in name:
        return f"{mean:.4g}"
    spread = name not in ("all %", "unseen %", "fair %") and value.get("ci95") is not None
    return f"{mean:.1f}±{value['std']:.1f}" if spread else f"{mean:.1f}"
