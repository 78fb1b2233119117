"""The commands of real peers: peer, launch, status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coterie import config as configuration
from coterie.errors import InputError
from coterie.resuming import file_of

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: --set runtime.deadline=30 (repeatable)."),
]
Algorithm = Annotated[str, typer.Option(help="Which one, where the file has several.")]
Seed = Annotated[int | None, typer.Option(help="Instead of the first seed of the file.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]


def say(line: str) -> None:
    """A line for people, at once, also in a log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def peer(
    file: Annotated[Path, typer.Argument(help="Configuration (TOML) with [[peers]].")],
    me: Annotated[int | None, typer.Option("--id", help="Which peer of the list to be.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Be the server.")] = False,
    changes: Set = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default: runs/NAME-peer-ID.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Insist on going on; it does so anyway.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would leave this machine.")
    ] = False,
    algorithm: Algorithm = "",
    seed: Seed = None,
    metrics: Annotated[str, typer.Option(help="Port or host:port of /metrics.")] = "",
    device: Device = "auto",
    leash: Annotated[bool, typer.Option("--leash", hidden=True)] = False,
) -> None:
    """Take part in a run as one real peer, or say what it would send.

    A peer that starts again in the same folder goes on from its last checkpoint.
    """
    from coterie.peers.stopping import Stop

    with Stop() as stop:
        config = configuration.load(file, [*(changes or ()), *_metrics(metrics)])
        who = _who(me, server)
        from coterie.peers.start import Job, show, work

        job = Job(config, file.parent, who, algorithm, seed, out, device, resume, leash)
        if dry_run:
            show(job, say)
            return
        code = work(job, say, stop)
    if code:
        raise typer.Exit(code)


def launch(
    file: Annotated[
        Path | None, typer.Argument(help="Configuration (TOML); none: the built-in demo.")
    ] = None,
    peers: Annotated[
        int | None, typer.Option(help="How many; as many as the configuration has nodes.")
    ] = None,
    algorithm: Annotated[
        str, typer.Option(help="Which one; one that the file lacks has its defaults.")
    ] = "",
    seed: Seed = None,
    link: Annotated[str, typer.Option(help="grpc or mqtt; default: that of the file.")] = "",
    broker: Annotated[
        str, typer.Option(help="mqtt://host:port; default: the file's, else one started here.")
    ] = "",
    changes: Set = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/NAME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the peers in --out.")
    ] = False,
    device: Device = "cpu",
) -> None:
    """Start all peers of a run as processes of this machine; one table, one run folder."""
    from coterie.peers.stopping import Stop

    with Stop() as stop:
        changes = [*(changes or ()), *([f"runtime.link='{link}'"] if link else [])]
        file, chosen = file_of(file, out, resume), [algorithm] if algorithm else []
        config = configuration.load(file, changes, chosen)
        from coterie.peers.play import Order, play

        code = play(Order(config, out, peers, algorithm, seed, broker, device, resume), stop)
    if code:
        raise typer.Exit(code)


def status(
    places: Annotated[
        list[str],
        typer.Argument(help="Addresses of metrics, a run folder, or a configuration of peers."),
    ],
) -> None:
    """Who is where: every peer's round, accuracy, lag and bytes."""
    from rich.console import Console

    from coterie.peers.survey import survey, table, troubles

    found = survey(places)
    Console().print(table(found))
    for line in troubles(found):
        say(line)


def _metrics(address: str) -> list[str]:
    return [f"runtime.metrics='{address}'"] if address else []


def _who(me: int | None, server: bool) -> int:
    if server == (me is not None and me >= 0):
        raise InputError("say which peer of the list to be: --id N, or --server")
    return -1 if me is None else me
