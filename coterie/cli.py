"""The command line: run, compare, reproduce, report, list, data, keys, dag."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from coterie import __version__, peer_commands
from coterie import config as configuration
from coterie.config import Config
from coterie.dag_command import dag
from coterie.display import Display, console, print_results, say
from coterie.errors import InputError, unknown
from coterie.keys_command import keys_app
from coterie.mistakes import mistake, show_traceback
from coterie.resuming import file_of

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Personalized models among data owners that fall into unknown clusters.",
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets on this machine.")
app.add_typer(data_app, name="data")
app.add_typer(keys_app, name="keys")
KINDS = (  # of names, known without importing what registers them
    *("algorithms", "datasets", "models", "graphs", "shifts", "partitions"),
    *("optimizers", "objectives", "rules"),
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
    """Run the command; bad input and mistakes in own files are one message and exit code 2."""
    sys.path.insert(0, "")  # a user's own models and data, importable from the current folder
    try:
        app()
    except Exception as error:
        text = str(error) if isinstance(error, InputError) else mistake(error)
        if not text:
            raise
        show_traceback(error)
        say(f"error: {text}", Console(stderr=True), style="bold red")
        sys.exit(2)


def _say_version(wanted: bool) -> None:
    if wanted:
        say(f"coterie {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of coterie itself."""


@app.command()
def run(
    file: File = None,
    changes: Set = None,
    out: Out = None,
    device: Device = "auto",
    resume: Resume = False,
) -> None:
    """Run a configuration: every algorithm in it, every seed; a table and report.html."""
    file = file_of(file, out, resume)
    _execute(configuration.load(file, changes or ()), out, device, resume)


@app.command()
def compare(
    file: File = None,
    algorithms: Annotated[
        str | None, typer.Option(help="Names, separated by commas; none: those of the file.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds; 0: those of the file.")] = 0,
    changes: Set = None,
    out: Out = None,
    device: Device = "auto",
    resume: Resume = False,
) -> None:
    """Compare several algorithms and seeds on the same data in one table."""
    names = () if algorithms is None else _split(algorithms)
    file = file_of(file, out, resume)
    config = configuration.load(file, changes or (), names)
    if seeds:
        table = config.model_dump(exclude_none=True)
        table["experiment"]["seeds"] = seeds
        config = configuration.parse(table)
    _execute(config, out, device, resume)


def _split(algorithms: str) -> list[str]:
    names = [name.strip() for name in algorithms.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise InputError(
            "--algorithms takes different names separated by commas, such as facade,epidemic; "
            f"got {algorithms!r}"
        )
    return names


def _execute(config: Config, out: Path | None, device: str, resume: bool) -> None:
    from coterie.part import Stopped
    from coterie.report.page import write_report
    from coterie.run import new_folder
    from coterie.run import run as carry_out

    if resume and out is None:
        raise InputError("--resume needs --out, the folder of the run to go on with")
    folder = out or new_folder(config.experiment.name)
    with Display() as display:
        try:
            summary = carry_out(config, folder, device, resume, display.watch())
        except Stopped:
            summary = None
        except Exception as error:
            if (folder / "config.toml").is_file():
                error.add_note(f"mend it, then go on with: {_again(folder)}")
            raise
    if summary is None:
        say(f"stopped; go on with: {_again(folder)}")
        raise typer.Exit(display.code)
    print_results(summary)
    say(f"report: {write_report([folder])}")


def _again(folder: Path) -> str:
    return f"coterie run --out {shlex.quote(str(folder))} --resume"


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="An experiment, or the path of its file; none: list them.")
    ] = "",
    listed: Annotated[bool, typer.Option("--list", help="List experiments, or parts.")] = False,
    fraction: Annotated[float, typer.Option(help="Run this share of the rounds.")] = 1.0,
    seeds: Annotated[int, typer.Option(help="Number of seeds; 0: the experiment's own.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="Run this part (repeatable).")] = None,
    minutes: Annotated[float, typer.Option(min=0, help="Stop, saved, after so long.")] = math.inf,
    out: Annotated[Path, typer.Option(help="Folder of the run folders.")] = Path("runs/reproduce"),
    device: Device = "auto",
) -> None:
    """Redo a table or figure of a paper: ours beside the paper's; what is done is kept."""
    from coterie.reproduce import library

    if not name:  # before anything that takes seconds to import
        if only or seeds or fraction != 1 or minutes != math.inf:
            raise InputError("name an experiment; coterie reproduce --list has them all")
        needs = library.data_sets()
        for known, title in library.titles().items():
            say(f"{known:<26} {title} ({', '.join(needs[known])})")
        say("in brackets at the end: the data; coterie data list says what is here", style="dim")
        return
    from coterie.reproduce import command
    from coterie.reproduce.experiment import Scale

    order = command.Order(name, Scale(fraction, seeds), only or (), out, device, minutes)
    if listed:
        command.list_parts(order)
    elif code := command.reproduce(order):
        raise typer.Exit(code)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path | None, typer.Option(help="Where report.html goes.")] = None,
) -> None:
    """Write report.html and tables from run folders alone; peers of one run become one."""
    from coterie.report.page import write_report

    if len(folders) > 1:
        from coterie.peers.together import together

        if joined := together(folders, out):
            folders, out = [joined], joined
    say(f"report: {write_report(folders, out)}")


@app.command(name="list")
def list_names(
    kind: Annotated[
        str, typer.Argument(help=f"{', '.join(KINDS)}; none: all of them, in short.")
    ] = "",
    name: Annotated[str, typer.Argument(help="One of them; none: all of this kind.")] = "",
) -> None:
    """What can be named in a configuration: one line each, options with defaults."""
    if kind and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    for title, registry in _registries().items():
        if kind in ("", title):
            entries = [registry[name]] if name else registry.entries.values()
            console.print(f"\n{title}", style="bold")
            for entry in entries:
                _print_entry(entry, bool(kind))


def _registries() -> dict[str, Any]:
    import coterie.algorithms  # noqa: F401  (registers the algorithms)
    from coterie import data
    from coterie.algorithms.mcfl_rules import rules
    from coterie.core import algorithms, graphs
    from coterie.models import models
    from coterie.training import objectives, optimizers

    found = [algorithms, data.sources, models, graphs, data.shifts, data.partitions]
    return dict(zip(KINDS, [*found, optimizers, objectives, rules], strict=True))


def _print_entry(entry: Any, options: bool) -> None:
    mark = " (knows the clusters)" if entry.oracle else ""
    say(f"  {entry.name:<16} {entry.doc}{mark}")
    for option in entry.options() if options else []:
        text = f"      {option.name} = {option.default!r}"
        say(f"{text:<34} {option.doc}", style="dim")


@data_app.command("list")
def data_list() -> None:
    """Which data sets are on this machine, and where."""
    from coterie import data

    for entry in data.available():
        place = str(entry.found) if entry.found else entry.how
        mark = "yes" if entry.ready else "no"
        say(f"{entry.name:<16} {mark:<4} {place}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set; see: coterie data list.")],
) -> None:
    """Fetch the official archive of a data set and verify its checksum."""
    from coterie import data

    data.check_fetchable(name)
    with Progress(console=console) as progress:
        task = progress.add_task(name, total=None)

        def advance(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        where = data.get(name, progress=advance)
    say(f"{name}: {where}")


for _command in (peer_commands.peer, peer_commands.launch, peer_commands.status, dag):
    app.command()(_command)  # after those that most people need, also in --help
