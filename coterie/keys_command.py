"""The command `coterie keys`: a peer's key and certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(no_args_is_help=True, help="A peer's key and certificate.")


@keys_app.callback()
def keys() -> None:
    """A peer's key and certificate."""


@keys_app.command("new")
def new(
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path("keys"),
    name: Annotated[str, typer.Option(help="Name of the files and in the certificate.")] = "peer",
    days: Annotated[int, typer.Option(min=1, max=36500, help="Days of validity.")] = 3650,
) -> None:
    """Make a key and a certificate, and print the lines for the list of peers."""
    from coterie.links import keys

    made = keys.make(name, days)
    key, certificate = keys.write(made, out, name)
    typer.echo(f"key: {key} (stays on this machine)")
    typer.echo(f"certificate: {certificate} (give it to every other peer)")
    typer.echo("for this peer's entry in everybody's list of peers:")
    typer.echo(f'fingerprint = "{made.fingerprint}"')
    typer.echo(f'certificate = "{certificate.name}"')
