"""The file of a personal model: named tensors, and how its inputs were made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from coterie.core.nodes import Nodes
from coterie.runtimes.checkpoint import write_atomically


def personal_file(nodes: Nodes, row: Tensor) -> bytes:
    """A model [P] as safetensors; its metadata `inputs` has `mean` and `std` of image channels."""
    named = {name: value.contiguous() for name, value in nodes.layout.unflatten(row.cpu()).items()}
    pool = nodes.test_data.pool
    # one key: safetensors writes several in any order, and equal models are equal files
    inputs = json.dumps({"mean": pool.mean, "std": pool.std})
    data: bytes = safetensors.torch.save(named, {"inputs": inputs})
    return data


def write_models(personal: Iterable[tuple[Nodes, Tensor]], path_of: Callable[[int], Path]) -> None:
    """Write every node's model where `path_of` its key says; equal ones share one file."""
    last: tuple[Tensor, Path] | None = None
    for nodes, models in personal:
        for key, row in zip(nodes.key.tolist(), models.cpu(), strict=True):
            path = path_of(key)
            if last is not None and torch.equal(row, last[0]) and _linked(path, last[1]):
                continue
            write_atomically(path, personal_file(nodes, row))
            last = (row, path)


def _linked(path: Path, twin: Path) -> bool:
    """Give a file a second name; False where the file system has no such thing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.hardlink_to(twin)
    except OSError:
        return False
    return True
