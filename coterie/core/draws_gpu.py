"""The same draws on a GPU in one kernel; imported only where tensors lie on one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["t", "purpose"])
def _philox_words(seed_ptr, node_ptr, out_ptr, t, purpose, count, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    block = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(seed_ptr + row).to(tl.uint64)
    zero = block.to(tl.uint32) * 0
    node = zero + tl.load(node_ptr + row).to(tl.uint32)
    words = tl.philox(
        seed, block.to(tl.uint32), node, zero + t.to(tl.uint32), zero + purpose.to(tl.uint32)
    )
    out_ptr += row.to(tl.int64) * count
    for place in tl.static_range(4):
        at = block * 4 + place
        tl.store(out_ptr + at, words[place].to(tl.int64), mask=at < count)


def draw_on_gpu(seed: Tensor, purpose: int, t: int, node: Tensor, count: int) -> Tensor:
    """Words for each node: int64 [..., count]; `seed` and `node` have one shape."""
    words = torch.empty(*node.shape, count, dtype=torch.int64, device=node.device)
    blocks = triton.cdiv(count, 4)
    if node.numel() and count:
        grid = (node.numel(), triton.cdiv(blocks, 128))
        _philox_words[grid](
            seed.contiguous(), node.contiguous(), words, t & 0xFFFFFFFF, purpose, count, 128
        )
    return words
