"""The file of a personal model: named tensors, and how its inputs were made."""

from __future__ import annotations

import json

import safetensors.torch
from torch import Tensor

from coterie.core.nodes import Nodes


def personal_file(nodes: Nodes, row: Tensor) -> bytes:
    """A model [P] as safetensors; its metadata `inputs` has `mean` and `std` of image channels."""
    named = {name: value.contiguous() for name, value in nodes.layout.unflatten(row.cpu()).items()}
    pool = nodes.test_data.pool
    # one key: safetensors writes several in any order, and equal models are equal files
    inputs = json.dumps({"mean": pool.mean, "std": pool.std})
    data: bytes = safetensors.torch.save(named, {"inputs": inputs})
    return data
