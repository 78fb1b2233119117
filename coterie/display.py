"""What a run shows in a terminal while it goes on."""

from __future__ import annotations

import math
import signal
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

console = Console()


def say(text: str, console: Console = console, style: str = "") -> None:
    """A line as it is, never broken: names and commands in it can be copied."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


class Display:
    """Round, accuracy per cluster and time left, as a bar or, in a log, as a line per evaluation.

    Ctrl-C asks for a stop after the round, and so does the end of the time that is given.
    """

    def __init__(self, minutes: float = math.inf) -> None:
        self.asked = False
        self.deadline = time.monotonic() + 60 * minutes
        self.task: TaskID | None = None
        self.rounds, self.first, self.done, self.name = 0, 0, 0, ""
        self.started = time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.completed}/{task.total}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[accuracy]}"),
            console=console,
        )

    def __enter__(self) -> Display:
        self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self.task is not None:
            self.progress.stop()
        signal.signal(signal.SIGINT, self.before)

    def _ask(self, *signal_and_frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.progress.console.print("stopping after this round (again: at once)")

    def watch(self) -> Any:
        """The callbacks for the run."""
        from coterie.part import Watch

        return Watch(
            plan=say,
            part=self._part,
            round=self._round,
            accuracy=self._accuracy,
            stop=self.over,
        )

    def over(self) -> bool:
        """Whether a stop was asked for, or the time is over."""
        return self.asked or time.monotonic() > self.deadline

    def _part(self, name: str, done: int, rounds: int) -> None:
        self.name, self.first, self.done, self.rounds = name, done, done, rounds
        self.started = time.monotonic()
        if console.is_terminal:
            self.progress.start()
            self.task = self.progress.add_task(name, total=rounds, completed=done, accuracy="")

    def _round(self, done: int) -> None:
        self.done = done
        if self.task is not None:
            self.progress.update(self.task, completed=done)

    def _accuracy(self, clusters: dict[str, float]) -> None:
        shown = "  ".join(f"{name} {value:.1f}" for name, value in clusters.items())
        if self.task is not None:
            self.progress.update(self.task, accuracy=shown)
        else:
            done = min(self.done + 1, self.rounds)  # an evaluation belongs to the round it follows
            spent = (time.monotonic() - self.started) / max(done - self.first, 1)
            left = f"{spent * (self.rounds - done):.0f} s left"
            say(f"{self.name}: round {done}/{self.rounds}  {shown}  {left}")
