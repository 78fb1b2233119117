"""Linear layers of many models at once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from coterie.training.kernels.activation import activate
from coterie.training.kernels.convolution import Weights, _dot
from coterie.training.kernels.update import Descent, apply_descent


@triton.jit
def _forward(
    x_ptr, w_ptr, bias_ptr, y_ptr, batch, K: tl.constexpr, N: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BIAS: tl.constexpr,
    ACT: tl.constexpr, PRECISION: tl.constexpr,
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
    if BIAS:
        acc += tl.load(bias_ptr + row * N + n, mask=n < N, other=0.0)[None, :]
    acc = activate(acc, ACT)
    at = (row * batch + m)[:, None] * N + n[None, :]
    tl.store(y_ptr + at, acc, mask=(m < batch)[:, None] & (n < N)[None, :])


def forward(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, activation: str, precision: str
) -> None:
    """y [rows, batch, N] = x [rows, batch, K] @ w [rows, K, N] + bias."""
    rows, batch, size = x.shape
    outputs = y.shape[2]
    block = 16 if batch <= 16 else 64
    width = min(64, max(16, triton.next_power_of_2(outputs)))
    grid = (rows, triton.cdiv(batch, block), triton.cdiv(outputs, width))
    _forward[grid](
        x, w, w if bias is None else bias, y, batch, size, outputs, BM=block, BN=width, BK=64,
        BIAS=bias is not None, ACT=activation, PRECISION=precision,
    )  # fmt: skip


@triton.jit
def _weight_step(
    x_ptr, dy_ptr, w_ptr, b_ptr, lr_ptr, last_w_ptr, last_b_ptr, batch, decay, momentum,
    MOMENTUM: tl.constexpr, BIAS: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, LOOPS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    x_ptr += row * batch * K
    dy_ptr += row * batch * N
    acc = tl.zeros((BK, BN), dtype=tl.float32)
    sums = tl.zeros((BN,), dtype=tl.float32)
    for loop in range(LOOPS):
        m = loop * BM + tl.arange(0, BM)
        x = tl.load(
            x_ptr + m[None, :] * K + k[:, None],
            mask=(m < batch)[None, :] & (k < K)[:, None],
            other=0.0,
        )
        dy = tl.load(
            dy_ptr + m[:, None] * N + n[None, :],
            mask=(m < batch)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        acc = _dot(x, dy, acc, PRECISION)
        if BIAS:
            sums += tl.sum(dy, axis=0)
    lr = tl.load(lr_ptr + row)
    at = row * (K * N) + k[:, None] * N + n[None, :]
    real = (k < K)[:, None] & (n < N)[None, :]
    apply_descent(w_ptr, last_w_ptr, at, acc, real, lr, decay, momentum, MOMENTUM)
    if BIAS and tl.program_id(1) == 0:
        apply_descent(b_ptr, last_b_ptr, row * N + n, sums, n < N, lr, decay, momentum, MOMENTUM)


def weight_step(x: Tensor, dy: Tensor, weights: Weights, precision: str, descent: Descent) -> None:
    """One step of SGD of w [rows, K, N] and a bias, by x [rows, batch, K], dy [rows, batch, N]."""
    rows, batch, size = x.shape
    (w, b), outputs = weights, dy.shape[2]
    width = min(64, max(16, triton.next_power_of_2(outputs)))
    grid = (rows, triton.cdiv(size, 64), triton.cdiv(outputs, width))
    _weight_step[grid](
        x, dy, w, w if b is None else b, descent.lr, *descent.places(w), batch, descent.decay,
        descent.momentum, MOMENTUM=descent.last is not None,
        BIAS=descent.bias and b is not None, K=size, N=outputs,
        BM=16, BN=width, BK=64, LOOPS=triton.cdiv(batch, 16), PRECISION=precision,
    )  # fmt: skip
