"""Checkpoints: the state of a part of a run between two rounds, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from coterie.errors import InputError
from coterie.links.wire import unshared


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's content; after a crash it holds the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def save(
    path: Path,
    states: list[Any],
    sent: Tensor,
    note: dict[str, Any],
    more: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the states of all blocks, the traffic so far, a note of plain values, and `more`."""
    whole = joined(states)
    fields = {f"state.{f.name}": getattr(whole, f.name) for f in dataclasses.fields(whole)}
    tensors = {"sent": sent, **(more or {}), **fields}
    write_atomically(path, safetensors.torch.save(unshared(tensors), {"note": json.dumps(note)}))


def joined(states: list[Any]) -> Any:
    """The states of all blocks as one."""

    def whole(field: dataclasses.Field[Any]) -> Tensor:
        rows = [getattr(state, field.name) for state in states]
        return rows[0] if len(rows) == 1 or _is_replica(field) else torch.cat(rows)

    fields = dataclasses.fields(states[0])
    return dataclasses.replace(states[0], **{field.name: whole(field) for field in fields})


def read_note(path: Path) -> dict[str, Any]:
    """The note of a checkpoint."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            note: dict[str, Any] = json.loads(file.metadata()["note"])
            return note
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from None


def read_json(path: Path) -> Any:
    """What a file beside a checkpoint holds; InputError where that is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def read_results(path: Path, rounds: int) -> list[dict[str, Any]] | None:
    """The results of a part that is done; None where it is not, or had other rounds."""
    if not path.exists():
        return None
    found = read_json(path)
    try:
        results: list[dict[str, Any]] | None = found["results"]
        return results if found["rounds"] == rounds else None
    except (KeyError, TypeError) as error:
        raise _unreadable(path, error) from None


def load(path: Path, like: list[Any]) -> tuple[list[Any], Tensor]:
    """The states of all blocks, in the shapes of `like`, and the traffic so far."""
    tensors = read(path)
    fields = {
        field.name: _split(tensors, field, like, path) for field in dataclasses.fields(like[0])
    }
    states = [
        type(state)(**{name: parts[number] for name, parts in fields.items()})
        for number, state in enumerate(like)
    ]
    return states, tensors["sent"]


def read(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, on the CPU."""
    try:
        tensors = safetensors.torch.load(path.read_bytes())
        return {"sent": tensors["sent"], **tensors}
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from None


def _split(
    tensors: dict[str, Tensor], field: dataclasses.Field[Any], like: list[Any], path: Path
) -> list[Tensor]:
    """A field of every block's state."""
    whole = tensors.get("state." + field.name)
    mine = [getattr(state, field.name) for state in like]
    replica = _is_replica(field)
    rows = len(mine[0]) if replica else sum(len(part) for part in mine)
    fixed = 2 if field.metadata.get("grows") else 1  # the first axis that never changes
    if whole is None or len(whole) != rows or whole.shape[fixed:] != mine[0].shape[fixed:]:
        raise foreign(path)
    parts = [whole] * len(mine) if replica else whole.split([len(part) for part in mine])
    return [part.to(own.device, own.dtype) for part, own in zip(parts, mine, strict=True)]


def foreign(path: Path) -> InputError:
    """The error where a checkpoint holds something else than this run needs."""
    return InputError(f"the checkpoint {path} belongs to another configuration")


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"the checkpoint {path} cannot be read ({error}); delete it to compute that part afresh"
    )


def _is_replica(field: dataclasses.Field[Any]) -> bool:
    return field.metadata.get("axis") == "replica"
