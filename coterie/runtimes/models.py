"""Personal models as files of named tensors; nodes that hold the same model share one file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from coterie.core.nodes import Nodes
from coterie.runtimes.checkpoint import write_atomically


def write_models(personal: Iterable[tuple[Nodes, Tensor]], path_of: Callable[[int], Path]) -> None:
    """Write every node's model where `path_of` its key says."""
    last: tuple[Tensor, Path] | None = None
    for nodes, models in personal:
        for key, row in zip(nodes.key.tolist(), models.cpu(), strict=True):
            path = path_of(key)
            if last is not None and torch.equal(row, last[0]) and _linked(path, last[1]):
                continue
            named = {n: v.contiguous() for n, v in nodes.layout.unflatten(row).items()}
            write_atomically(path, safetensors.torch.save(named))
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
