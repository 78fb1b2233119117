"""The gradient of each batch's mean loss by the outputs: cross-entropy and squared error."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _cross_entropy(
    logits_ptr, labels_ptr, ids_ptr, dlogits_ptr, batch,
    CLASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    real = k < CLASSES
    logits = tl.load(logits_ptr + image * CLASSES + k, mask=real, other=float("-inf"))
    label = tl.load(labels_ptr + tl.load(ids_ptr + image))
    weights = tl.exp(logits - tl.max(logits, axis=0))
    share = weights / tl.sum(weights, axis=0)
    gradient = (share - tl.where(k == label, 1.0, 0.0)) / batch
    tl.store(dlogits_ptr + image * CLASSES + k, gradient, mask=real)


def cross_entropy_gradient(logits: Tensor, labels: Tensor, ids: Tensor, dlogits: Tensor) -> None:
    """Of logits [rows, batch, classes] against the labels of a pool at ids [rows, batch]."""
    rows, batch, classes = logits.shape
    _cross_entropy[(rows * batch,)](
        logits,
        labels,
        ids,
        dlogits,
        batch,
        classes,
        triton.next_power_of_2(classes),
        num_warps=1,
    )


@triton.jit
def _to_targets(
    out_ptr, target_ptr, ids_ptr, dout_ptr, scale, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    image = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = i < SIZE
    sample = tl.load(ids_ptr + image).to(tl.int64)
    apart = tl.load(out_ptr + image * SIZE + i, mask=real, other=0.0)
    apart -= tl.load(target_ptr + sample * SIZE + i, mask=real, other=0.0)
    tl.store(dout_ptr + image * SIZE + i, apart * scale, mask=real)


def squared_error_gradient(out: Tensor, targets: Tensor, ids: Tensor, dout: Tensor) -> None:
    """Of outputs [rows, batch, K] against the targets [N, K] of a pool at ids [rows, batch]."""
    rows, batch, size = out.shape
    block = min(1024, triton.next_power_of_2(size))
    grid = (rows * batch, triton.cdiv(size, block))
    _to_targets[grid](out, targets, ids, dout, 2.0 / (size * batch), size, block)


@triton.jit
def _to_inputs(
    out_ptr, x_ptr, dout_ptr, scale,
    SIZE: tl.constexpr, PIXELS: tl.constexpr, REAL: tl.constexpr, C: tl.constexpr,
    PLANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if PLANES:  # outputs are (channel, pixel), inputs (pixel, channel)
        at = (i % PIXELS) * C + i // PIXELS
        counts = i < SIZE
    else:  # both are (pixel, channel), and the padding channels have no error
        at = i
        counts = (i < SIZE) & (i % C < REAL)
    apart = tl.load(out_ptr + image * SIZE + i, mask=counts, other=0.0)
    apart -= tl.load(x_ptr + image * (PIXELS * C) + at, mask=counts, other=0.0)
    tl.store(dout_ptr + image * SIZE + i, tl.where(counts, apart * scale, 0.0), mask=i < SIZE)


def reconstruction_gradient(out: Tensor, x: Tensor, dout: Tensor, channels: int) -> None:
    """Of outputs against the inputs x [rows, batch, H, W, C], whose first `channels` are real.

    Outputs are [rows, batch, channels * H * W] of a linear layer, or shaped as x.
    """
    rows, batch = x.shape[:2]
    size, pixels = out[0, 0].numel(), x.shape[2] * x.shape[3]
    block = min(1024, triton.next_power_of_2(size))
    scale = 2.0 / (pixels * channels * batch)
    _to_inputs[(rows * batch, triton.cdiv(size, block))](
        out, x, dout, scale, size, pixels, channels, x.shape[-1], out.ndim == 3, block
    )
