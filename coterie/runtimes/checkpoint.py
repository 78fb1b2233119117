"""Checkpoints: the state of a part of a run between two rounds, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from coterie.errors import InputError


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


def save(path: Path, states: list[Any], sent: Tensor, note: dict[str, Any]) -> None:
    """Write the states of all blocks, the traffic so far and a note of plain values."""
    tensors = {"sent": sent}
    for field in dataclasses.fields(states[0]):
        rows = [getattr(state, field.name) for state in states]
        whole = rows[0] if _is_replica(field) else torch.cat(rows)
        tensors["state." + field.name] = whole.detach().cpu().contiguous()
    write_atomically(path, safetensors.torch.save(tensors, {"note": json.dumps(note)}))


def read_note(path: Path) -> dict[str, Any]:
    """The note of a checkpoint."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            note: dict[str, Any] = json.loads(file.metadata()["note"])
            return note
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise InputError(f"the checkpoint {path} cannot be read: {error}") from None


def load(path: Path, like: list[Any]) -> tuple[list[Any], Tensor]:
    """The states of all blocks, in the shapes of `like`, and the traffic so far."""
    try:
        tensors = safetensors.torch.load(path.read_bytes())
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise InputError(f"the checkpoint {path} cannot be read: {error}") from None
    states = []
    start = 0
    for state in like:
        values = {}
        size = 0
        for field in dataclasses.fields(state):
            mine = getattr(state, field.name)
            whole = tensors.get("state." + field.name)
            if whole is None or whole.shape[1:] != mine.shape[1:]:
                raise InputError(f"the checkpoint {path} belongs to another configuration")
            size = size if _is_replica(field) else len(mine)
            part = whole if _is_replica(field) else whole[start : start + size]
            values[field.name] = part.to(mine.device, mine.dtype)
        states.append(type(state)(**values))
        start += size
    return states, tensors["sent"]


def _is_replica(field: dataclasses.Field[Any]) -> bool:
    return field.metadata.get("axis") == "replica"
