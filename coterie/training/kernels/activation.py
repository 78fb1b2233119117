"""GroupNorm, ReLU and pooling in one pass over the activations."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Stage:
    """What follows a convolution: optional group norm, optional ReLU, optional 2x2 pool."""

    height: int
    width: int
    channels: int
    groups: int  # of the norm; 1 without norm
    norm: bool
    relu: bool
    pool: str  # "max" or "mean" of 2x2 pixels; empty: none
    eps: float = 1e-5

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (self.height // 2, self.width // 2) if self.pool else (self.height, self.width)

    def constants(self) -> dict[str, int | bool | float]:
        """The shapes as a kernel takes them."""
        window = 2 if self.pool else 1
        # windows that the border cuts give no output, but the norm counts their pixels
        down, across = triton.cdiv(self.height, window), triton.cdiv(self.width, window)
        return {
            "H": self.height,
            "W": self.width,
            "C": self.channels,
            "OH": self.out[0],
            "OW": self.out[1],
            "ACROSS": across,
            "P": down * across,
            "G": self.groups,
            "CG": self.channels // self.groups,
            "NORM": self.norm,
            "RELU": self.relu,
            "WINDOW": window,
            "MEAN": self.pool == "mean",
            "BP": triton.next_power_of_2(down * across),
        }

    def warps(self) -> int:
        """Warps for one sample's group."""
        values = self.height * self.width * self.channels // self.groups
        return 4 if values <= 4096 else 8 if values <= 16384 else 16


@triton.jit
def _corner(p, image, H: tl.constexpr, W: tl.constexpr, ACROSS: tl.constexpr, WINDOW: tl.constexpr):
    """The first pixel of each window."""
    return (image * H + (p // ACROSS) * WINDOW) * W + (p % ACROSS) * WINDOW


@triton.jit
def _below(p, P: tl.constexpr, H: tl.constexpr, ACROSS: tl.constexpr):
    """Which windows have a second row: all but those that an odd height cuts."""
    real = p < P
    if H % 2 == 1:
        real = real & ((p // ACROSS) * 2 + 1 < H)
    return real[:, None]


@triton.jit
def _right(p, P: tl.constexpr, W: tl.constexpr, ACROSS: tl.constexpr):
    """Which windows have a second column."""
    real = p < P
    if W % 2 == 1:
        real = real & ((p % ACROSS) * 2 + 1 < W)
    return real[:, None]


@triton.jit
def _output(p, image, OH: tl.constexpr, OW: tl.constexpr, ACROSS: tl.constexpr):
    """Where the output of each window lies."""
    at = p if OW == ACROSS else (p // ACROSS) * OW + p % ACROSS
    return image * (OH * OW) + at


@triton.jit
def _forward(
    y_ptr, gamma_ptr, beta_ptr, out_ptr, mean_ptr, rstd_ptr, batch, eps,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    ACROSS: tl.constexpr, P: tl.constexpr, G: tl.constexpr, CG: tl.constexpr, NORM: tl.constexpr,
    RELU: tl.constexpr, WINDOW: tl.constexpr, MEAN: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CG)
    p = tl.arange(0, BP)
    real = (p < P)[:, None]
    whole = real
    at = y_ptr + _corner(p, image, H, W, ACROSS, WINDOW)[:, None] * C + c[None, :]
    a = tl.load(at, mask=real, other=0.0)
    if WINDOW == 2:
        below = _below(p, P, H, ACROSS)
        right = _right(p, P, W, ACROSS)
        whole = below & right
        b = tl.load(at + C, mask=right, other=0.0)
        d = tl.load(at + W * C, mask=below, other=0.0)
        e = tl.load(at + W * C + C, mask=whole, other=0.0)
    if NORM:
        count = H * W * CG
        if WINDOW == 2:
            mean = tl.sum(a + b + d + e) / count
            if H % 2 + W % 2 > 0:  # pixels that are not there
                b = tl.where(right, b, mean)
                d = tl.where(below, d, mean)
                e = tl.where(whole, e, mean)
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
    if MEAN:
        if RELU:
            a = tl.maximum(a, 0.0) + tl.maximum(b, 0.0) + tl.maximum(d, 0.0) + tl.maximum(e, 0.0)
        else:
            a = a + b + d + e
        a = a * 0.25
    else:
        if WINDOW == 2:
            a = tl.maximum(tl.maximum(a, b), tl.maximum(d, e))
        if RELU:
            a = tl.maximum(a, 0.0)
    to = _output(p, image, OH, OW, ACROSS)[:, None] * C + c[None, :]
    tl.store(out_ptr + to, a, mask=whole)


@triton.jit
def _positive(part, dout, gamma, beta, RELU: tl.constexpr):
    """A quarter of the gradient, where a ReLU lets it through."""
    share = dout * 0.25
    if RELU:
        share = tl.where(part * gamma + beta > 0, share, 0.0)
    return share


@triton.jit
def _backward(
    y_ptr, gamma_ptr, beta_ptr, dout_ptr, mean_ptr, rstd_ptr, dy_ptr, dgamma_ptr, dbeta_ptr, batch,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    ACROSS: tl.constexpr, P: tl.constexpr, G: tl.constexpr, CG: tl.constexpr, NORM: tl.constexpr,
    RELU: tl.constexpr, WINDOW: tl.constexpr, MEAN: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CG)
    p = tl.arange(0, BP)
    real = (p < P)[:, None]
    whole = real
    at = _corner(p, image, H, W, ACROSS, WINDOW)[:, None] * C + c[None, :]
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
        below = _below(p, P, H, ACROSS)
        right = _right(p, P, W, ACROSS)
        whole = below & right
        b = (tl.load(y_ptr + at + C, mask=right, other=0.0) - mean) * rstd
        d = (tl.load(y_ptr + at + W * C, mask=below, other=0.0) - mean) * rstd
        e = (tl.load(y_ptr + at + W * C + C, mask=whole, other=0.0) - mean) * rstd
        best = tl.maximum(best, b * gamma + beta)
        best = tl.maximum(best, tl.maximum(d * gamma + beta, e * gamma + beta))
    # windows that the border cuts have no output: their pixels get what the norm spreads
    to = _output(p, image, OH, OW, ACROSS)[:, None] * C + c[None, :]
    dout = tl.load(dout_ptr + to, mask=whole, other=0.0)
    if RELU and not MEAN:
        dout = tl.where(best > 0, dout, 0.0)
    if WINDOW == 1:
        da = dout
        if NORM:
            dgamma = tl.sum(da * a, axis=0)
            dbeta = tl.sum(da, axis=0)
    else:
        if MEAN:
            da = _positive(a, dout, gamma, beta, RELU)
            db = _positive(b, dout, gamma, beta, RELU)
            dd = _positive(d, dout, gamma, beta, RELU)
            de = _positive(e, dout, gamma, beta, RELU)
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
        tl.store(dy_ptr + at + C, db, mask=right)
        tl.store(dy_ptr + at + W * C, dd, mask=below)
        tl.store(dy_ptr + at + W * C + C, de, mask=whole)


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
