"""`coterie reproduce`: run what is open of an experiment and put ours beside the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.display import Display, say
from coterie.metrics.settlement import counted
from coterie.part import Stopped
from coterie.report import files
from coterie.report.tables import Table
from coterie.reproduce import beside, library, parts, report
from coterie.reproduce.experiment import Experiment, Scale
from coterie.reproduce.parts import Task
from coterie.reproduce.report import Reproduction
from coterie.run import find_device

ROOT = Path("runs/reproduce")


@dataclass(frozen=True)
class Order:
    """What a user asked for."""

    name: str
    scale: Scale
    only: Sequence[str]
    root: Path
    device: str
    minutes: float

    def words(self) -> str:
        """The command that goes on with it."""
        given = ["coterie", "reproduce", self.name]
        given += [] if self.scale.fraction == 1 else ["--fraction", f"{self.scale.fraction:g}"]
        given += ["--seeds", str(self.scale.seeds)] if self.scale.seeds else []
        given += [word for name in self.only for word in ("--only", name)]
        given += [] if self.root == ROOT else ["--out", str(self.root)]
        return shlex.join(given)


def reproduce(order: Order) -> int:
    """Run the parts that are not done and write the report; returns the exit code."""
    experiment = library.load(order.name)
    find_device(order.device)
    planned = parts.tasks(experiment, order.root, order.scale)
    wanted = {part.name for part in experiment.chosen(order.only)}
    ordered = [task for task in planned if task.part.name in wanted]
    waiting = parts.check(ordered)
    say(experiment.file.title, style="bold")
    display = Display(order.minutes)
    with display:
        stopped = _run(waiting, len(ordered), order, display)
    found = report.gather(experiment, planned, order.scale)
    page = report.write(found, order.root / f"{experiment.name}{order.scale.suffix()}")
    _show(found)
    if stopped:
        say(f"stopped; go on with: {order.words()}")
    if experiment.file.figure and not files.available():
        say("figures as PDF and PNG need matplotlib: pip install 'coterie[figures]'")
    say(f"report: {page}")
    return display.code


def _run(waiting: Sequence[Task], total: int, order: Order, display: Display) -> bool:
    """Run tasks one after the other; True where it ended before all were done."""
    for number, task in enumerate(waiting, total - len(waiting) + 1):
        if display.over():
            return True
        note = f": {task.part.note}" if task.part.note else ""
        say(f"part {number}/{total} {task.part.name}{note}", style="bold")
        try:
            parts.carry_out(task, order.device, display.watch())
        except Stopped:
            return True
    return False


def _show(found: Reproduction) -> None:
    """The table, the settlement, the paper's claims and what is open."""
    _print(beside.short_table(found.rows, found.keys))
    if found.experiment.file.paper:
        say(beside.NOTE, style="dim")
    settlement = found.settlement()
    if settlement:
        _print(settlement)
    for verdict in found.verdicts():
        say(verdict.line())
    for line in report.summary(found):
        say(line)
    for name, state in found.open_parts().items():
        say(f"open: {name}{state.removeprefix('open')}")


def _print(table: Table) -> None:
    """Columns side by side, never cut: a narrow terminal breaks the lines, a log has them whole."""
    lines = [table.header, *table.texts()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    say("")
    for line in lines:
        names = [cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False)]
        cells = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        say("  ".join([*names, *cells]).rstrip(), style="bold" if line is table.header else "")


def list_parts(order: Order) -> None:
    """The parts of one experiment: how much each is, and how far."""
    experiment = library.load(order.name)
    listed = parts.tasks(experiment, order.root, order.scale, order.only)
    say(experiment.file.title, style="bold")
    for task in listed:
        home = task.folder.parent.name
        whose = "" if home == f"{experiment.name}{order.scale.suffix()}" else f", of {home}"
        say(f"  {task.part.name:<20} {_amount(experiment, task)}  {_standing(task)}{whose}")


def _standing(task: Task) -> str:
    """How far a part is, and how long it took."""
    state = task.state()
    if state == "done":
        return f"done in {task.seconds():.0f} s"
    if state == "begun":
        return f"{task.rounds_done()} of {task.rounds_planned()} rounds done"
    return state


def _amount(experiment: Experiment, task: Task) -> str:
    config = task.config
    labels, scenarios = len(config.algorithm), len(config.data.scenarios())
    seeds, rounds = len(config.experiment.seeds), config.experiment.rounds
    counts = f"{counted(scenarios, 'scenario')} x {counted(seeds, 'seed')}"
    times = f"{counts} = {task.part.rows()} rows, {rounds} rounds"
    return f"{labels} x {times}" if labels > 1 else times
