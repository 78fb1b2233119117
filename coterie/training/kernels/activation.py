"""GroupNorm, ReLU and max-pooling in one pass over the activations."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Stage:
    """What follows a convolution: optional group norm, optional ReLU, optional 2x2 max-pool."""

    height: int
    width: int
    channels: int
    groups: int  # of the norm; 1 without norm
    norm: bool
    relu: bool
    pool: bool
    eps: float = 1e-5

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (self.height // 2, self.width // 2) if self.pool else (self.height, self.width)

    def constants(self) -> dict[str, int | bool | float]:
        """The shapes as a kernel takes them."""
        pixels = self.out[0] * self.out[1]
        return {
            "H": self.height,
            "W": self.width,
            "C": self.channels,
            "OW": self.out[1],
            "P": pixels,
            "G": self.groups,
            "CG": self.channels // self.groups,
            "NORM": self.norm,
            "RELU": self.relu,
            "WINDOW": 2 if self.pool else 1,
            "BP": triton.next_power_of_2(pixels),
        }

    def warps(self) -> int:
        """Warps for one sample's group."""
        values = self.height * self.width * self.channels // self.groups
        return 4 if values <= 4096 else 8 if values <= 16384 else 16


@triton.jit
def _corner(p, image, H: tl.constexpr, W: tl.constexpr, OW: tl.constexpr, WINDOW: tl.constexpr):
    """The first input pixel of each output pixel."""
    return (image * H + (p // OW) * WINDOW) * W + (p % OW) * WINDOW


@triton.jit
def _forward(
    y_ptr, gamma_ptr, beta_ptr, out_ptr, mean_ptr, rstd_ptr, batch, eps,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OW: tl.constexpr, P: tl.constexpr,
    G: tl.constexpr, CG: tl.constexpr, NORM: tl.constexpr, RELU: tl.constexpr,
    WINDOW: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CG)
    p = tl.arange(0, BP)
    real = (p < P)[:, None]
    at = y_ptr + _corner(p, image, H, W, OW, WINDOW)[:, None] * C + c[None, :]
    a = tl.load(at, mask=real, other=0.0)
    if WINDOW == 2:
        b = tl.load(at + C, mask=real, other=0.0)
        d = tl.load(at + W * C, mask=real, other=0.0)
        e = tl.load(at + W * C + C, mask=real, other=0.0)
    if NORM:
        count = H * W * CG
        if WINDOW == 2:
            mean = tl.sum(a + b + d + e) / count
            squares = (a - mean) * (a - mean) + (b - mean) * (b - mean)
            squares += (d - mean) * (d - mean) + (e - mean) * (e - mean)
        else:
            mean = tl.sum(a) / count
            squares = (a - mean) * (a - mean)
        rstd = 1.0 / tl.sqrt(tl.sum(tl.where(real, squares, 0.0)) / count + eps)
        tl.store(mean_ptr + image * G + group, mean)
        tl.store(rstd_ptr + image * G + group, rstd)
        row = image // batch
        gamma = tl.load(gamma_ptr + row * C + c)[None, :]
        beta = tl.load(beta_ptr + row * C + c)[None, :]
        a = (a - mean) * rstd * gamma + beta
        if WINDOW == 2:
            b = (b - mean) * rstd * gamma + beta
            d = (d - mean) * rstd * gamma + beta
            e = (e - mean) * rstd * gamma + beta
    if WINDOW == 2:
        a = tl.maximum(tl.maximum(a, b), tl.maximum(d, e))
    if RELU:
        a = tl.maximum(a, 0.0)
    tl.store(out_ptr + (image * P + p)[:, None] * C + c[None, :], a, mask=real)


@triton.jit
def _backward(
    y_ptr, gamma_ptr, beta_ptr, dout_ptr, mean_ptr, rstd_ptr, dy_ptr, dgamma_ptr, dbeta_ptr, batch,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OW: tl.constexpr, P: tl.constexpr,
    G: tl.constexpr, CG: tl.constexpr, NORM: tl.constexpr, RELU: tl.constexpr,
    WINDOW: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CG)
    p = tl.arange(0, BP)
    real = (p < P)[:, None]
    at = _corner(p, image, H, W, OW, WINDOW)[:, None] * C + c[None, :]
    mean = 0.0
    rstd = 1.0
    gamma = tl.full((1, CG), 1.0, tl.float32)
    beta = tl.full((1, CG), 0.0, tl.float32)
    if NORM:
        row = image // batch
        mean = tl.load(mean_ptr + image * G + group)
        rstd = tl.load(rstd_ptr + image * G + group)
        gamma = tl.load(gamma_ptr + row * C + c)[None, :]
        beta = tl.load(beta_ptr + row * C + c)[None, :]
    a = (tl.load(y_ptr + at, mask=real, other=0.0) - mean) * rstd
    best = a * gamma + beta
    if WINDOW == 2:
        b = (tl.load(y_ptr + at + C, mask=real, other=0.0) - mean) * rstd
        d = (tl.load(y_ptr + at + W * C, mask=real, other=0.0) - mean) * rstd
        e = (tl.load(y_ptr + at + W * C + C, mask=real, other=0.0) - mean) * rstd
        best = tl.maximum(best, b * gamma + beta)
        best = tl.maximum(best, tl.maximum(d * gamma + beta, e * gamma + beta))
    dout = tl.load(dout_ptr + (image * P + p)[:, None] * C + c[None, :], mask=real, other=0.0)
    if RELU:
        dout = tl.where(best > 0, dout, 0.0)
    if WINDOW == 1:
        da = dout
        if NORM:
            dgamma = tl.sum(da * a, axis=0)
            dbeta = tl.sum(da, axis=0)
    else:
        # the first pixel of a window that reaches the maximum gets the gradient
        da = tl.where(a * gamma + beta >= best, dout, 0.0)
        rest = dout - da
        db = tl.where(b * gamma + beta >= best, rest, 0.0)
        rest = rest - db
        dd = tl.where(d * gamma + beta >= best, rest, 0.0)
        de = rest - dd
        if NORM:
            dgamma = tl.sum(da * a + db * b + dd * d + de * e, axis=0)
            dbeta = tl.sum(da + db + dd + de, axis=0)
    if NORM:
        tl.store(dgamma_ptr + image * C + c, dgamma)
        tl.store(dbeta_ptr + image * C + c, dbeta)
        scale = tl.reshape(gamma, (CG,))
        first = tl.sum(dbeta * scale) / (H * W * CG)
        second = tl.sum(dgamma * scale) / (H * W * CG)
        da = rstd * (da * gamma - first - a * second)
        if WINDOW == 2:
            db = rstd * (db * gamma - first - b * second)
            dd = rstd * (dd * gamma - first - d * second)
            de = rstd * (de * gamma - first - e * second)
    tl.store(dy_ptr + at, da, mask=real)
    if WINDOW == 2:
        tl.store(dy_ptr + at + C, db, mask=real)
        tl.store(dy_ptr + at + W * C, dd, mask=real)
        tl.store(dy_ptr + at + W * C + C, de, mask=real)


def forward(
    y: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    out: Tensor,
    stats: tuple[Tensor, Tensor] | None,
    stage: Stage,
) -> None:
    """out = pool(relu(norm(y))); keeps each group's mean and inverse deviation in `stats`."""
    rows, batch = y.shape[:2]
    mean, rstd = stats if stats else (y, y)
    _forward[(rows * batch * stage.groups,)](
        y,
        y if gamma is None else gamma,
        y if beta is None else beta,
        out,
        mean,
        rstd,
        batch,
        stage.eps,
        **stage.constants(),
        num_warps=stage.warps(),
    )


def backward(
    y: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    dout: Tensor,
    stats: tuple[Tensor, Tensor] | None,
    dy: Tensor,
    partial: tuple[Tensor, Tensor] | None,
    stage: Stage,
) -> None:
    """dy, and for a norm the gradients of its scale and shift by sample."""
    rows, batch = y.shape[:2]
    mean, rstd = stats if stats else (y, y)
    dgamma, dbeta = partial if partial else (y, y)
    _backward[(rows * batch * stage.groups,)](
        y,
        y if gamma is None else gamma,
        y if beta is None else beta,
        dout,
        mean,
        rstd,
        dy,
        dgamma,
        dbeta,
        batch,
        **stage.constants(),
        num_warps=stage.warps(),
    )
