"""Plain gradient descent on packed weights: partial gradients are added and applied in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _descend(
    w_ptr, partial_ptr, lr_ptr, size, by_part, by_row, decay,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):  # always in this order: the same bits every time
        total += tl.load(partial_ptr + part * by_part + row * by_row + i, mask=real, other=0.0)
    w = tl.load(w_ptr + row * size + i, mask=real, other=0.0)
    total += decay * w
    tl.store(w_ptr + row * size + i, w - tl.load(lr_ptr + row) * total, mask=real)


def descend(w: Tensor, partial: Tensor, lr: Tensor, decay: float) -> None:
    """w [rows, ...] -= lr [rows] * (sum of partial [parts, rows, ...] + decay * w)."""
    rows, size = len(w), w[0].numel()
    block = min(1024, triton.next_power_of_2(size))
    by_part, by_row = partial.stride(0), partial.stride(1)
    _descend[(rows, triton.cdiv(size, block))](
        w, partial, lr, size, by_part, by_row, decay, len(partial), block
    )
