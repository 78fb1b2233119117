"""Sums of heard rows on a GPU in one pass; imported only where tensors lie on one."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["degree"])
def _slot_sum(
    rows_ptr, heard_ptr, weight_ptr, out_ptr, size, by_row, degree,
    MOST: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(size, BLOCK)  # of a row; a grid's second axis would end at 65,535
    row = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    for slot in range(MOST):  # always in source order: the same bits every time
        here = slot < degree
        source = tl.load(heard_ptr + row * degree + slot, mask=here, other=0)
        value = tl.load(rows_ptr + source * by_row + i, mask=real & here, other=0.0)
        if WEIGHTED:
            weight = tl.load(weight_ptr + row * degree + slot, mask=here, other=0.0)
            # an empty slot holds somebody's row, which may have diverged: 0 x NaN is NaN
            value = tl.where(weight == 0, tl.zeros_like(value), value * weight)
        total += value
    tl.store(out_ptr + row * size + i, total, mask=real)


def sum_slots_on_gpu(rows: Tensor, heard: Tensor, table: Tensor | None) -> Tensor:
    """Sum of table [m, D] (None: ones) times rows [S, ...] at heard [m, D]: [m, ...]."""
    total = rows.new_empty(len(heard), *rows.shape[1:])
    if not heard.numel() or not total.numel():
        return total.zero_()
    if not rows[0].is_contiguous():
        rows = rows.contiguous()
    size = rows[0].numel()
    block = min(1024, triton.next_power_of_2(size))
    _slot_sum[(len(heard) * triton.cdiv(size, block),)](
        rows,
        heard.contiguous(),
        rows if table is None else table.contiguous(),
        total,
        size,
        rows.stride(0),
        heard.shape[1],
        triton.next_power_of_2(heard.shape[1]),  # few kernels for many degrees
        table is not None,
        block,
    )
    return total
