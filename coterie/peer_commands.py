"""The commands of real peers: peer, launch, status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coterie import config as configuration
from coterie.errors import InputError

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


def _metrics(address: str) -> list[str]:
    return [f"runtime.metrics='{address}'"] if address else []


def _who(me: int | None, server: bool) -> int:
    if server == (me is not None and me >= 0):
        raise InputError("say which peer of the list to be: --id N, or --server")
    return -1 if me is None else me
