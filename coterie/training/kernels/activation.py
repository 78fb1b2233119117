"""GroupNorm, activation and pooling in one pass over images."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Stage:
    """The shapes of one pass: optional group norm, optional activation, optional 2x2 pool."""

    height: int
    width: int
    channels: int  # as they are stored
    real: int  # channels that are not padding
    groups: int  # of the norm; 1 without norm
    norm: bool
    activation: str  # "relu" or "sigmoid"; empty: none
    pool: str  # "max" or "mean" of 2x2 pixels; empty: none
    eps: float = 1e-5

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (self.height // 2, self.width // 2) if self.pool else (self.height, self.width)

    @property
    def touched(self) -> int:
        """Channels that are read and written: padding stays 0, which only some stages keep so."""
        keeps = not self.norm and self.activation != "sigmoid"
        return self.channels if keeps else self.real

    def constants(self) -> dict[str, int | bool | str]:
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
            "CG": self.touched // self.groups,
            "CB": triton.next_power_of_2(self.touched // self.groups),
            "NORM": self.norm,
            "ACT": self.activation,
            "WINDOW": window,
            "MEAN": self.pool == "mean",
            "BP": triton.next_power_of_2(down * across),
        }

    def warps(self) -> int:
        """Warps for one sample's group."""
        values = self.height * self.width * self.touched // self.groups
        return 4 if values <= 4096 else 8 if values <= 16384 else 16


@triton.jit
def activate(x, ACT: tl.constexpr):
    """What an activation makes of x."""
    if ACT == "relu":
        x = tl.maximum(x, 0.0)
    elif ACT == "sigmoid":
        x = tl.sigmoid(x)
    return x


@triton.jit
def _through(dout, x, ACT: tl.constexpr):
    """What an activation of x lets through of a gradient."""
    if ACT == "relu":
        dout = tl.where(x > 0, dout, 0.0)
    elif ACT == "sigmoid":
        share = tl.sigmoid(x)
        dout = dout * share * (1.0 - share)
    return dout


@triton.jit
def _real(p, P: tl.constexpr, CG: tl.constexpr, CB: tl.constexpr):
    """Which windows and channels are there."""
    real = (p < P)[:, None]
    if CB > CG:
        real = real & (tl.arange(0, CB) < CG)[None, :]
    return real


@triton.jit
def _corner(p, image, H: tl.constexpr, W: tl.constexpr, ACROSS: tl.constexpr, WINDOW: tl.constexpr):
    """The first pixel of each window."""
    return (image * H + (p // ACROSS) * WINDOW) * W + (p % ACROSS) * WINDOW


@triton.jit
def _below(p, real, H: tl.constexpr, ACROSS: tl.constexpr):
    """Which windows have a second row: all but those that an odd height cuts."""
    if H % 2 == 1:
        real = real & ((p // ACROSS) * 2 + 1 < H)[:, None]
    return real


@triton.jit
def _right(p, real, W: tl.constexpr, ACROSS: tl.constexpr):
    """Which windows have a second column."""
    if W % 2 == 1:
        real = real & ((p % ACROSS) * 2 + 1 < W)[:, None]
    return real


@triton.jit
def _output(p, image, OH: tl.constexpr, OW: tl.constexpr, ACROSS: tl.constexpr):
    """Where the output of each window lies."""
    at = p if OW == ACROSS else (p // ACROSS) * OW + p % ACROSS
    return image * (OH * OW) + at


@triton.jit
def _forward(
    y_ptr, gamma_ptr, beta_ptr, out_ptr, mean_ptr, rstd_ptr, batch, eps,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    ACROSS: tl.constexpr, P: tl.constexpr, G: tl.constexpr, CG: tl.constexpr, CB: tl.constexpr,
    NORM: tl.constexpr, ACT: tl.constexpr, WINDOW: tl.constexpr, MEAN: tl.constexpr,
    BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CB)
    own = tl.arange(0, CB) < CG
    p = tl.arange(0, BP)
    real = _real(p, P, CG, CB)
    whole = real
    at = y_ptr + _corner(p, image, H, W, ACROSS, WINDOW)[:, None] * C + c[None, :]
    a = tl.load(at, mask=real, other=0.0)
    if WINDOW == 2:
        below = _below(p, real, H, ACROSS)
        right = _right(p, real, W, ACROSS)
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
        gamma = tl.load(gamma_ptr + row * (G * CG) + c, mask=own, other=0.0)[None, :]
        beta = tl.load(beta_ptr + row * (G * CG) + c, mask=own, other=0.0)[None, :]
        a = (a - mean) * rstd * gamma + beta
        if WINDOW == 2:
            b = (b - mean) * rstd * gamma + beta
            d = (d - mean) * rstd * gamma + beta
            e = (e - mean) * rstd * gamma + beta
    if MEAN:
        a = activate(a, ACT) + activate(b, ACT) + activate(d, ACT) + activate(e, ACT)
        a = a * 0.25
    else:
        if WINDOW == 2:
            a = tl.maximum(tl.maximum(a, b), tl.maximum(d, e))
        a = activate(a, ACT)  # they all grow: the maximum stays where it is
    to = _output(p, image, OH, OW, ACROSS)[:, None] * C + c[None, :]
    tl.store(out_ptr + to, a, mask=whole)


@triton.jit
def _backward(
    y_ptr, gamma_ptr, beta_ptr, dout_ptr, mean_ptr, rstd_ptr, dy_ptr, dgamma_ptr, dbeta_ptr, batch,
    INPUT: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    ACROSS: tl.constexpr, P: tl.constexpr, G: tl.constexpr, CG: tl.constexpr, CB: tl.constexpr,
    NORM: tl.constexpr, ACT: tl.constexpr, WINDOW: tl.constexpr, MEAN: tl.constexpr,
    BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CB)
    own = tl.arange(0, CB) < CG
    p = tl.arange(0, BP)
    real = _real(p, P, CG, CB)
    whole = real
    at = _corner(p, image, H, W, ACROSS, WINDOW)[:, None] * C + c[None, :]
    mean = 0.0
    rstd = 1.0
    gamma = tl.full((1, CB), 1.0, tl.float32)
    beta = tl.full((1, CB), 0.0, tl.float32)
    if NORM:
        row = image // batch
        mean = tl.load(mean_ptr + image * G + group)
        rstd = tl.load(rstd_ptr + image * G + group)
        gamma = tl.load(gamma_ptr + row * (G * CG) + c, mask=own, other=0.0)[None, :]
        beta = tl.load(beta_ptr + row * (G * CG) + c, mask=own, other=0.0)[None, :]
    a = (tl.load(y_ptr + at, mask=real, other=0.0) - mean) * rstd
    best = a * gamma + beta
    if WINDOW == 2:
        below = _below(p, real, H, ACROSS)
        right = _right(p, real, W, ACROSS)
        whole = below & right
        b = (tl.load(y_ptr + at + C, mask=right, other=0.0) - mean) * rstd
        d = (tl.load(y_ptr + at + W * C, mask=below, other=0.0) - mean) * rstd
        e = (tl.load(y_ptr + at + W * C + C, mask=whole, other=0.0) - mean) * rstd
        best = tl.maximum(best, b * gamma + beta)
        best = tl.maximum(best, tl.maximum(d * gamma + beta, e * gamma + beta))
    # windows that the border cuts have no output: their pixels get what the norm spreads
    to = _output(p, image, OH, OW, ACROSS)[:, None] * C + c[None, :]
    dout = tl.load(dout_ptr + to, mask=whole, other=0.0)
    if not MEAN:
        dout = _through(dout, best, ACT)
    if WINDOW == 1:
        da = dout
        if NORM:
            dgamma = tl.sum(da * a, axis=0)
            dbeta = tl.sum(da, axis=0)
    else:
        if MEAN:
            quarter = dout * 0.25
            da = _through(quarter, a * gamma + beta, ACT)
            db = _through(quarter, b * gamma + beta, ACT)
            dd = _through(quarter, d * gamma + beta, ACT)
            de = _through(quarter, e * gamma + beta, ACT)
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
        tl.store(dgamma_ptr + image * (G * CG) + c, dgamma, mask=own)
        tl.store(dbeta_ptr + image * (G * CG) + c, dbeta, mask=own)
        scale = tl.reshape(gamma, (CB,))
        first = tl.sum(dbeta * scale) / (H * W * CG)
        second = tl.sum(dgamma * scale) / (H * W * CG)
        da = rstd * (da * gamma - first - a * second)
        if WINDOW == 2:
            db = rstd * (db * gamma - first - b * second)
            dd = rstd * (dd * gamma - first - d * second)
            de = rstd * (de * gamma - first - e * second)
    if INPUT:
        tl.store(dy_ptr + at, da, mask=real)
    if INPUT and WINDOW == 2:
        tl.store(dy_ptr + at + C, db, mask=right)
        tl.store(dy_ptr + at + W * C, dd, mask=below)
        tl.store(dy_ptr + at + W * C + C, de, mask=whole)


Pair = tuple[Tensor, Tensor]


def forward(y: Tensor, scale: Pair | None, out: Tensor, stats: Pair | None, stage: Stage) -> None:
    """out = pool(activation(norm(y))).

    A norm has scale and shift [rows, channels], and keeps each group's mean and inverse deviation
    in `stats`.
    """
    rows, batch = y.shape[:2]
    _forward[(rows * batch * stage.groups,)](
        y,
        *(scale or (y, y)),
        out,
        *(stats or (y, y)),
        batch,
        stage.eps,
        **stage.constants(),
        num_warps=stage.warps(),
    )


def backward(
    y: Tensor,
    scale: Pair | None,
    dout: Tensor,
    stats: Pair | None,
    dy: Tensor | None,
    by_sample: Pair | None,
    stage: Stage,
) -> None:
    """dy, and the gradients of a norm's scale and shift by sample [rows, batch, channels]."""
    rows, batch = y.shape[:2]
    _backward[(rows * batch * stage.groups,)](
        y,
        *(scale or (y, y)),
        dout,
        *(stats or (y, y)),
        y if dy is None else dy,
        *(by_sample or (y, y)),
        batch,
        INPUT=dy is not None,
        **stage.constants(),
        num_warps=stage.warps(),
    )
