"""Reading samples: uint8 images of a pool become normalised activations, gathered by index."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _gather(
    pool_ptr, ids_ptr, scale_ptr, offset_ptr, x_ptr,
    PIXELS: tl.constexpr, REAL: tl.constexpr, C: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    sample = tl.load(ids_ptr + image)
    c = tl.arange(0, C)
    real = (p < PIXELS)[:, None] & (c < REAL)[None, :]
    at = sample * (REAL * PIXELS) + c[None, :] * PIXELS + p[:, None]
    value = tl.load(pool_ptr + at, mask=real, other=0).to(tl.float32)
    scale = tl.load(scale_ptr + c, mask=c < REAL, other=0.0)[None, :]
    offset = tl.load(offset_ptr + c, mask=c < REAL, other=0.0)[None, :]
    where = (image * PIXELS + p)[:, None] * C + c[None, :]
    tl.store(x_ptr + where, value * scale + offset, mask=(p < PIXELS)[:, None])


def gather(pool: Tensor, ids: Tensor, scale: Tensor, offset: Tensor, x: Tensor) -> None:
    """x [rows, batch, H, W, C] = the normalised images [N, c, H, W] of ids [rows, batch]."""
    channels, pixels = pool.shape[1], pool.shape[2] * pool.shape[3]
    block = min(256, triton.next_power_of_2(pixels))
    _gather[(ids.numel(), triton.cdiv(pixels, block))](
        pool, ids, scale, offset, x, pixels, channels, x.shape[-1], block
    )
