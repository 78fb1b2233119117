"""The command `coterie dag`: look at the family of models of a run, and compute every id again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from coterie.display import console, say
from coterie.errors import InputError

COLUMNS = ("label", "scenario", "seed", "rounds", "models", "alive", "forks", "mergers", "extinct")


def dag(folder: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """The family of models of a run: forks, mergers, how many live; every id is computed again."""
    families = read_families(folder)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for where, records in families.items():
        check(records, str(folder))
        table.add_row(*map(str, where), *_numbers(records))
    console.print(table)
    count = sum(len(records) for records in families.values())
    say(f"{count} ids were computed again: all are right")


def read_families(folder: Path) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The models of a run folder by label, scenario and seed."""
    path = folder / "dag.jsonl"
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    try:
        for record in _lines(path):
            if record["kind"] == "model":
                where = record["label"], record["scenario"], record["seed"]
                found.setdefault(where, []).append(record)
    except FileNotFoundError:
        raise InputError(
            f"there is no dag.jsonl in {str(folder)!r}; runs of mcfl write one"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {str(path)!r}: {error!r}") from None
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def check(records: list[dict[str, Any]], where: str) -> None:
    """Raise InputError unless every id is the hash of its parent and updates."""
    from coterie.core.lineage import model_id, update_id

    for record in records:
        try:
            parent = bytes.fromhex(record["parent"])
            t = record["born"] - 1
            made = model_id(parent, [update_id(t, node, parent) for node in record["updates"]])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{where}: a model cannot be read: {error!r}") from None
        if made.hex() != record["id"]:
            raise InputError(
                f"{where}: model {record['id'][:16]} of round {record['born']} has a false id; its "
                f"parent and updates give {made.hex()[:16]}"
            )


def _numbers(records: list[dict[str, Any]]) -> list[str]:
    from coterie.metrics.family import Model, turns

    models = [Model.of(record) for record in records]
    nodes = 1 + max(node for model in models for node in model.followers)
    happened = turns(models, nodes)
    sums = [sum(getattr(turn, name) for turn in happened) for name in ("forks", "mergers")]
    ended = sum(turn.extinct for turn in happened)
    numbers = [happened[-1].round, len(models), happened[-1].alive, *sums, ended]
    return [str(number) for number in numbers]
