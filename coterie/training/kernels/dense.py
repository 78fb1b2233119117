"""Linear layers of many models at once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from coterie.training.kernels.convolution import _dot


@triton.jit
def _forward(
    x_ptr, w_ptr, bias_ptr, y_ptr, batch, K: tl.constexpr, N: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, RELU: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    x_ptr += row * batch * K
    w_ptr += row * K * N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            x_ptr + m[:, None] * K + k[None, :],
            mask=(m < batch)[:, None] & (k < K)[None, :],
            other=0.0,
        )
        w = tl.load(
            w_ptr + k[:, None] * N + n[None, :],
            mask=(k < K)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        acc = _dot(x, w, acc, PRECISION)
    acc += tl.load(bias_ptr + row * N + n, mask=n < N, other=0.0)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    at = (row * batch + m)[:, None] * N + n[None, :]
    tl.store(y_ptr + at, acc, mask=(m < batch)[:, None] & (n < N)[None, :])


def forward(x: Tensor, w: Tensor, bias: Tensor, y: Tensor, relu: bool, precision: str) -> None:
    """y [rows, batch, N] = x [rows, batch, K] @ w [rows, K, N] + bias."""
    rows, batch, size = x.shape
    outputs = y.shape[2]
    block = 16 if batch <= 16 else 64
    width = min(64, max(16, triton.next_power_of_2(outputs)))
    grid = (rows, triton.cdiv(batch, block), triton.cdiv(outputs, width))
    _forward[grid](
        x, w, bias, y, batch, size, outputs, BM=block, BN=width, BK=64, RELU=relu,
        PRECISION=precision,
    )  # fmt: skip
