"""Keyed randomness: every number is a function of (seed, purpose, t, node, index) alone.

The generator is Philox 4x32-10 (Salmon et al., SC 2011) in integer operations, so that a CPU and a
GPU draw the same numbers, a block draws for all its nodes at once, and no draw depends on another.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 1 << 32  # words are drawn from range(WORD)


def purpose_word(purpose: str) -> int:
    """A 32-bit number for the name of a purpose."""
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "big")


Integers = TypeVar("Integers", Tensor, npt.NDArray[np.int64])


def philox(
    c0: Integers, c1: Integers, c2: Integers, c3: Integers, k0: Integers, k1: Integers
) -> tuple[Integers, Integers, Integers, Integers]:
    """Four words for each 4-word counter under a 2-word key; all are int64 in range(WORD)."""
    for _ in range(10):
        # The int64 product wraps, but its bit pattern is the unsigned one: mask after shifting.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _LOW) ^ c1 ^ k0,
            p1 & _LOW,
            ((p0 >> 32) & _LOW) ^ c3 ^ k1,
            p0 & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def draw(seed: Tensor | int, purpose: str, t: int, node: Tensor | int, count: int) -> Tensor:
    """Words for each node: int64 [..., count] in range(WORD); [...] is the shape of `node`."""
    node = torch.as_tensor(node, dtype=torch.int64)
    seed = torch.as_tensor(seed, dtype=torch.int64, device=node.device)
    if node.device.type == "cuda":
        from coterie.core.draws_gpu import draw_on_gpu

        return draw_on_gpu(seed.expand_as(node), purpose_word(purpose), t, node, count)
    node, seed = node.unsqueeze(-1), seed.unsqueeze(-1)
    blocks = torch.arange((count + 3) // 4, dtype=torch.int64, device=node.device)
    when = torch.full_like(blocks, t & _LOW)
    why = torch.full_like(blocks, purpose_word(purpose))
    words = philox(blocks + 0 * node, node & _LOW, when, why, seed & _LOW, (seed >> 32) & _LOW)
    return torch.stack(words, dim=-1).flatten(-2)[..., :count]


def draw_on_host(seed: int, purpose: str, t: int, nodes: int, count: int) -> npt.NDArray[np.int64]:
    """The words that `draw` gives for nodes 0, 1, ..., in numpy: [nodes, count]."""
    node = np.arange(nodes, dtype=np.int64)[:, None]
    blocks = np.arange((count + 3) // 4, dtype=np.int64)[None]
    when, why = np.full_like(blocks, t & _LOW), np.full_like(blocks, purpose_word(purpose))
    key = np.array([[seed & _LOW]]), np.array([[(seed >> 32) & _LOW]])
    words = philox(blocks + 0 * node, node & _LOW, when, why, *key)
    return np.stack(words, axis=-1).reshape(nodes, -1)[:, :count]


def uniform(words: Tensor) -> Tensor:
    """Words as float64 in the open interval (0, 1)."""
    return (words.double() + 0.5) / WORD


def below(words: Tensor, bound: Tensor | int) -> Tensor:
    """Words as integers in range(bound), by scaling (no modulo bias beyond 2**-32)."""
    return (words * bound) >> 32


def shuffle(words: Tensor) -> Tensor:
    """A random order of the last axis: the stable sorting permutation of its words."""
    return torch.argsort(words, dim=-1, stable=True)


def pick_lowest(values: Tensor, words: Tensor) -> Tensor:
    """The place of each row's lowest value [m, k] -> [m]; ties (and NaN rows) by their words."""
    values = torch.where(values.isnan(), torch.inf, values)
    tied = values == values.min(dim=1, keepdim=True).values
    return torch.where(tied, words, WORD).argmin(dim=1)
