"""Reading samples: images or rows of a pool become activations, gathered by index."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from coterie.core.samples import Pool


@triton.jit
def _gather(
    pool_ptr, stored_ptr, turn_ptr, turns_ptr, ids_ptr, scale_ptr, offset_ptr, x_ptr,
    STORED: tl.constexpr, TURNED: tl.constexpr,
    PIXELS: tl.constexpr, REAL: tl.constexpr, C: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    sample = tl.load(ids_ptr + image)
    c = tl.arange(0, C)
    real = (p < PIXELS)[:, None] & (c < REAL)[None, :]
    source = p
    if TURNED:
        turn = tl.load(turn_ptr + sample)
        source = tl.load(turns_ptr + turn * PIXELS + p, mask=p < PIXELS, other=0).to(tl.int32)
    if STORED:
        sample = tl.load(stored_ptr + sample)
    at = sample * (REAL * PIXELS) + c[None, :] * PIXELS + source[:, None]
    value = tl.load(pool_ptr + at, mask=real, other=0).to(tl.float32)
    scale = tl.load(scale_ptr + c, mask=c < REAL, other=0.0)[None, :]
    offset = tl.load(offset_ptr + c, mask=c < REAL, other=0.0)[None, :]
    where = (image * PIXELS + p)[:, None] * C + c[None, :]
    tl.store(x_ptr + where, value * scale + offset, mask=(p < PIXELS)[:, None])


def plane(pool: Pool) -> tuple[int, int, int]:
    """Channels, height and width of a pool's samples; a row of a table is an image one high."""
    shape = pool.inputs.shape
    return (1, 1, shape[1]) if len(shape) == 2 else (shape[1], shape[2], shape[3])


def gather(pool: Pool, ids: Tensor, scale: Tensor, offset: Tensor, x: Tensor) -> None:
    """x [rows, batch, H, W, C] = the scaled samples of ids [rows, batch], turned as they are."""
    channels, height, width = plane(pool)
    pixels = height * width
    block = min(256, triton.next_power_of_2(pixels))
    _gather[(ids.numel(), triton.cdiv(pixels, block))](
        pool.inputs,
        ids if pool.stored is None else pool.stored,
        ids if pool.turn is None else pool.turn,
        ids if pool.turns is None else pool.turns,
        ids,
        scale,
        offset,
        x,
        pool.stored is not None,
        pool.turn is not None,
        pixels,
        channels,
        x.shape[-1],
        block,
    )
