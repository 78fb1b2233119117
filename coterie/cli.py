"""The command line: run, compare, report, list, data."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from coterie import config as configuration
from coterie import peer_commands
from coterie.config import AlgorithmTable, Config
from coterie.errors import InputError, unknown
from coterie.keys_command import keys_app

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Personalized models among data owners that fall into unknown clusters.",
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets on this machine.")
app.add_typer(data_app, name="data")
app.add_typer(keys_app, name="keys")
for command in (peer_commands.peer, peer_commands.launch, peer_commands.status):
    app.command()(command)
console = Console()
KINDS = (  # of names, known without importing what registers them
    *("algorithms", "datasets", "models", "graphs", "shifts", "partitions"),
    *("optimizers", "objectives"),
)

File = Annotated[Path | None, typer.Argument(help="Configuration (TOML); none: the built-in demo.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: --set train.lr=0.01 (repeatable)."),
]
Out = Annotated[Path | None, typer.Option(help="Run folder; default: runs/NAME.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]


def main() -> None:
    """Run the command; bad input is one message and exit code 2."""
    sys.path.insert(0, "")  # a user's own models and data, importable from the current folder
    try:
        app()
    except InputError as error:
        _say(f"error: {error}", Console(stderr=True), style="bold red")
        sys.exit(2)


def _say(text: str, console: Console = console, style: str = "") -> None:
    """A line as it is, never broken: names and commands in it can be copied."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


@app.command()
def run(
    file: File = None,
    changes: Set = None,
    out: Out = None,
    device: Device = "auto",
    resume: Resume = False,
) -> None:
    """Run a configuration: every algorithm in it, every seed; a table and report.html."""
    if resume and file is None and out is not None:
        file = _config_of(out)
    _execute(configuration.load(file, changes or ()), out, device, resume)


def _config_of(folder: Path) -> Path:
    file = folder / "config.toml"
    if not file.is_file():
        raise InputError(f"there is no run to resume in {str(folder)!r} (it has no config.toml)")
    return file


@app.command()
def compare(
    file: File = None,
    algorithms: Annotated[str, typer.Option(help="Names, separated by commas.")] = "",
    seeds: Annotated[int, typer.Option(help="Number of seeds; 0: those of the file.")] = 0,
    changes: Set = None,
    out: Out = None,
    device: Device = "auto",
    resume: Resume = False,
) -> None:
    """Compare several algorithms and seeds on the same data in one table."""
    config = configuration.load(file, changes or ())
    table = config.model_dump(exclude_none=True)
    if algorithms:
        table["algorithm"] = [_chosen(config, name) for name in _split(algorithms)]
    if seeds:
        table["experiment"]["seeds"] = seeds
    _execute(configuration.parse(table), out, device, resume)


def _split(algorithms: str) -> list[str]:
    names = [name.strip() for name in algorithms.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise InputError(
            "--algorithms takes different names separated by commas, such as facade,epidemic; "
            f"got {algorithms!r}"
        )
    return names


def _chosen(config: Config, name: str) -> dict[str, Any]:
    """The file's table of this label or name, or the algorithm with its defaults."""
    for table in config.algorithm:
        if name in (config.label(table), table.name):
            return table.model_dump(exclude_none=True)
    return AlgorithmTable(name=name).model_dump(exclude_none=True)


def _execute(config: Config, out: Path | None, device: str, resume: bool) -> None:
    from coterie.part import Stopped
    from coterie.report.page import write_report
    from coterie.run import new_folder
    from coterie.run import run as carry_out

    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with")
    folder = out or new_folder(config.experiment.name)
    with _Display() as display:
        try:
            summary = carry_out(config, folder, device, resume, display.watch())
        except Stopped:
            summary = None
    if summary is None:
        _say(f"stopped; go on with: coterie run --out {shlex.quote(str(folder))} --resume")
        raise typer.Exit(130)
    _print_results(summary)
    _say(f"report: {write_report([folder])}")


class _Display:
    """Round, accuracy per cluster and time left, as a bar or, in a log, as a line per evaluation.

    Ctrl-C asks for a stop after the round.
    """

    def __init__(self) -> None:
        self.asked = False
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

    def __enter__(self) -> _Display:
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
            plan=_say,
            part=self._part,
            round=self._round,
            accuracy=self._accuracy,
            stop=lambda: self.asked,
        )

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
            _say(f"{self.name}: round {done}/{self.rounds}  {shown}  {left}")


def _print_results(summary: dict[str, Any]) -> None:
    """The results in 80 columns; report.html and tables/ have the rest."""
    marks = {r["label"]: " (knows the clusters)" if r["oracle"] else "" for r in summary["results"]}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown = _columns(summary)
    for number, name in enumerate(["algorithm", "nodes", *shown]):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for label in summary["order"]:
        for scenario, values in summary["aggregate"].get(label, {}).items():
            cells = [_cell(name, values.get(key)) for name, key in shown.items()]
            table.add_row(label + marks[label], scenario, *cells)
    console.print()
    console.print(table)
    seeds = len({result["seed"] for result in summary["results"]})
    text = f"mean ± population standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    console.print(text, style="dim", highlight=False)


def _columns(summary: dict[str, Any]) -> dict[str, str]:
    """The columns of the printed table: shown name -> key of the aggregate."""
    accuracy = any(result["accuracy"] for result in summary["results"])
    kind = "accuracy" if accuracy else "mse"
    unit = " %" if accuracy else ""
    columns = {name + unit: f"{kind}:{name}" for name in summary["clusters"]}
    columns["all" + unit] = f"{kind}_all"
    if accuracy:
        columns |= {"fair %": "fair_accuracy", "odds": "equalized_odds"}
    if any(result["settled"] is not None for result in summary["results"]):
        columns["settled"] = "settled"
    return columns | {"sent": "bytes_per_node"}


def _cell(name: str, value: dict[str, Any] | None) -> str:
    from coterie.metrics.traffic import format_bytes

    if value is None or value["mean"] is None:
        return "–"
    mean = value["mean"]
    if name == "sent":
        return format_bytes(mean)
    if name == "settled":
        return f"{mean:.0%}"
    if name == "odds":
        return f"{mean:.3f}"
    if "%" not in name:
        return f"{mean:.4g}"
    spread = name not in ("all %", "fair %") and value.get("ci95") is not None
    return f"{mean:.1f}±{value['std']:.1f}" if spread else f"{mean:.1f}"


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option(help="Where report.html goes.")] = None,
) -> None:
    """Write report.html and tables from run folders alone."""
    from coterie.report.page import write_report

    _say(f"report: {write_report(folders, out)}")


@app.command(name="list")
def list_names(
    kind: Annotated[
        str, typer.Argument(help=f"{', '.join(KINDS)}; none: all of them, in short.")
    ] = "",
) -> None:
    """What can be named in a configuration: one line each, options with defaults."""
    if kind and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    for name, registry in _registries().items():
        if kind in ("", name):
            console.print(f"\n{name}", style="bold")
            _print_registry(registry, bool(kind))


def _registries() -> dict[str, Any]:
    import coterie.algorithms  # noqa: F401  (registers the algorithms)
    from coterie import data
    from coterie.core import algorithms, graphs
    from coterie.models import models
    from coterie.training import objectives, optimizers

    found = [algorithms, data.sources, models, graphs, data.shifts, data.partitions]
    return dict(zip(KINDS, [*found, optimizers, objectives], strict=True))


def _print_registry(registry: Any, options: bool) -> None:
    for entry in registry.entries.values():
        mark = " (knows the clusters)" if entry.oracle else ""
        _say(f"  {entry.name:<16} {entry.doc}{mark}")
        for option in entry.options() if options else []:
            text = f"      {option.name} = {option.default!r}"
            _say(f"{text:<34} {option.doc}", style="dim")


@data_app.command("list")
def data_list() -> None:
    """Which data sets are on this machine, and where."""
    from coterie import data

    for entry in data.available():
        place = str(entry.found) if entry.found else entry.how
        mark = "yes" if entry.ready else "no"
        _say(f"{entry.name:<16} {mark:<4} {place}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set; see: coterie data list.")],
) -> None:
    """Fetch the official archive of a data set and verify its checksum."""
    from coterie import data

    with Progress(console=console) as progress:
        task = progress.add_task(name, total=None)

        def advance(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        where = data.get(name, progress=advance)
    _say(f"{name}: {where}")
