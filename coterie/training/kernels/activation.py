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
    corner = _corner(p, image, H, W, OW, WINDOW)
    scale = tl.full((1, CG), 1.0, tl.float32)
    shift = tl.full((1, CG), 0.0, tl.float32)
    if NORM:
        # every input pixel counts, also those that no pooling window covers
        i = tl.arange(0, BP * WINDOW * WINDOW)
        inside = (i < H * W)[:, None]
        whole = tl.load(
            y_ptr + (image * (H * W) + i)[:, None] * C + c[None, :], mask=inside, other=0.0
        )
        mean = tl.sum(whole) / (H * W * CG)
        apart = tl.where(inside, whole - mean, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(apart * apart) / (H * W * CG) + eps)
        row = image // batch
        gamma = tl.load(gamma_ptr + row * C + c)
        beta = tl.load(beta_ptr + row * C + c)
        scale = (gamma * rstd)[None, :]
        shift = (beta - gamma * rstd * mean)[None, :]
        tl.store(mean_ptr + image * G + group, mean)
        tl.store(rstd_ptr + image * G + group, rstd)
    best = tl.full((BP, CG), float("-inf"), tl.float32)
    for dh in tl.static_range(WINDOW):
        for dw in tl.static_range(WINDOW):
            at = (corner + dh * W + dw)[:, None] * C + c[None, :]
            v = tl.load(y_ptr + at, mask=real, other=0.0) * scale + shift
            if RELU:
                v = tl.maximum(v, 0.0)
            best = tl.maximum(best, v)
    tl.store(out_ptr + (image * P + p)[:, None] * C + c[None, :], best, mask=real)


@triton.jit
def _backward(
    y_ptr, gamma_ptr, beta_ptr, dout_ptr, mean_ptr, rstd_ptr, dy_ptr,
    dgamma_ptr, dbeta_ptr, batch,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OW: tl.constexpr, P: tl.constexpr,
    G: tl.constexpr, CG: tl.constexpr, NORM: tl.constexpr, RELU: tl.constexpr,
    WINDOW: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    image = (tl.program_id(0) // G).to(tl.int64)
    group = tl.program_id(0) % G
    c = group * CG + tl.arange(0, CG)
    p = tl.arange(0, BP)
    real = (p < P)[:, None]
    corner = _corner(p, image, H, W, OW, WINDOW)
    row = image // batch
    mean = 0.0
    rstd = 1.0
    gamma = tl.full((1, CG), 1.0, tl.float32)
    beta = tl.full((1, CG), 0.0, tl.float32)
    if NORM:
        mean = tl.load(mean_ptr + image * G + group)
        rstd = tl.load(rstd_ptr + image * G + group)
        gamma = tl.load(gamma_ptr + row * C + c)[None, :]
        beta = tl.load(beta_ptr + row * C + c)[None, :]
    best = tl.full((BP, CG), float("-inf"), tl.float32)
    for dh in tl.static_range(WINDOW):
        for dw in tl.static_range(WINDOW):
            at = (corner + dh * W + dw)[:, None] * C + c[None, :]
            hat = (tl.load(y_ptr + at, mask=real, other=0.0) - mean) * rstd
            best = tl.maximum(best, hat * gamma + beta)
    dout = tl.load(dout_ptr + (image * P + p)[:, None] * C + c[None, :], mask=real, other=0.0)
    if RELU:
        dout = tl.where(best > 0, dout, 0.0)
    looking = real & (c >= 0)[None, :]  # windows whose gradient has not found its pixel yet
    dgamma = tl.zeros((CG,), tl.float32)
    dbeta = tl.zeros((CG,), tl.float32)
    for dh in tl.static_range(WINDOW):
        for dw in tl.static_range(WINDOW):
            at = (corner + dh * W + dw)[:, None] * C + c[None, :]
            hat = (tl.load(y_ptr + at, mask=real, other=0.0) - mean) * rstd
            mine = looking & (hat * gamma + beta >= best)
            looking = looking & (mine == 0)
            dz = tl.where(mine, dout, 0.0)
            dgamma += tl.sum(dz * hat, axis=0)
            dbeta += tl.sum(dz, axis=0)
            tl.store(dy_ptr + at, dz, mask=real)
    if NORM:
        tl.store(dgamma_ptr + image * C + c, dgamma)
        tl.store(dbeta_ptr + image * C + c, dbeta)
        first = tl.sum(dbeta * tl.sum(gamma, axis=0)) / (H * W * CG)
        second = tl.sum(dgamma * tl.sum(gamma, axis=0)) / (H * W * CG)
        tl.debug_barrier()
        i = tl.arange(0, BP * WINDOW * WINDOW)
        inside = (i < H * W)[:, None]
        at = (image * (H * W) + i)[:, None] * C + c[None, :]
        hat = (tl.load(y_ptr + at, mask=inside, other=0.0) - mean) * rstd
        dz = tl.load(dy_ptr + at, mask=inside, other=0.0)
        tl.store(dy_ptr + at, rstd * (dz * gamma - first - hat * second), mask=inside)


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
