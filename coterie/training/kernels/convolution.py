"""Convolutions of many models at once, as implicit matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from coterie.training.kernels.update import Descent, apply_descent

Weights = tuple[Tensor, Tensor | None]  # with the bias, if there is one


@dataclass(frozen=True)
class Geometry:
    """The shapes of one convolution; channels are the padded ones."""

    height: int
    width: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    stride: int
    padding: tuple[int, int]  # above and at the left, and as much below and at the right
    more: tuple[int, int] = (0, 0)  # below and at the right alone

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the output."""
        return (
            (self.height + 2 * self.padding[0] + self.more[0] - self.kernel[0]) // self.stride + 1,
            (self.width + 2 * self.padding[1] + self.more[1] - self.kernel[1]) // self.stride + 1,
        )

    def constants(self) -> dict[str, int]:
        """The shapes as a kernel takes them."""
        return {
            "H": self.height,
            "W": self.width,
            "C": self.channels,
            "OH": self.out[0],
            "OW": self.out[1],
            "N": self.filters,
            "KH": self.kernel[0],
            "KW": self.kernel[1],
            "STRIDE": self.stride,
            "PH": self.padding[0],
            "PW": self.padding[1],
        }


@triton.jit
def _dot(a, b, acc, PRECISION: tl.constexpr):
    """acc + a @ b with factors rounded as asked: ieee (not at all), tf32 or bf16."""
    if PRECISION == "bf16":
        acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def _inside(top, left, place, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr):
    """Whether the input pixel of each output pixel at each kernel position exists: [m, places]."""
    down = top[:, None] + (place // KW)[None, :]
    right = left[:, None] + (place % KW)[None, :]
    real = (place < KH * KW)[None, :]
    return real & (down >= 0) & (down < H) & (right >= 0) & (right < W)


@triton.jit
def _forward(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, tiles,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    SK: tl.constexpr, SN: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y[m, n] = bias[n] + sum over kernel positions and channels of x * w; a tile a program."""
    row = (tl.program_id(0) // tiles).to(tl.int64)
    m = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    top = (m // OW % OH) * STRIDE - PH
    left = (m % OW) * STRIDE - PW
    batch = M // (OH * OW)
    x_ptr += row * batch * (H * W * C)
    w_ptr += row * (KH * KW * C * N)
    corner = ((m // (OH * OW)) * H + top) * W + left
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for place in range(KH * KW):
        kh = place // KW
        kw = place % KW
        inside = (m < M) & (top + kh >= 0) & (top + kh < H) & (left + kw >= 0) & (left + kw < W)
        pixel = (corner + kh * W + kw) * C
        for start in tl.static_range(0, C, BK):
            c = start + tl.arange(0, BK)
            x = tl.load(
                x_ptr + pixel[:, None] + c[None, :],
                mask=inside[:, None] & (c < C)[None, :],
                other=0.0,
            )
            w = tl.load(
                w_ptr + (place * C + c)[:, None] * SK + n[None, :] * SN,
                mask=(c < C)[:, None] & (n < N)[None, :],
                other=0.0,
            )
            acc = _dot(x, w, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + row * N + n, mask=n < N, other=0.0)[None, :]
    at = (row * M + m)[:, None] * N + n[None, :]
    tl.store(y_ptr + at, acc, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def _forward_narrow(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, tiles,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    SK: tl.constexpr, SN: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same for few channels: several kernel positions share one step of the product."""
    row = (tl.program_id(0) // tiles).to(tl.int64)
    m = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    top = (m // OW % OH) * STRIDE - PH
    left = (m % OW) * STRIDE - PW
    batch = M // (OH * OW)
    x_ptr += row * batch * (H * W * C)
    w_ptr += row * (KH * KW * C * N)
    corner = (((m // (OH * OW)) * H + top) * W + left) * C
    c = tl.arange(0, C)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, KH * KW, BK // C):
        place = start + tl.arange(0, BK // C)
        inside = _inside(top, left, place, H, W, KH, KW) & (m < M)[:, None]
        pixel = corner[:, None] + ((place // KW) * W + place % KW)[None, :] * C
        x = tl.load(
            x_ptr + pixel[:, :, None] + c[None, None, :], mask=inside[:, :, None], other=0.0
        )
        k = start * C + tl.arange(0, BK)
        w = tl.load(
            w_ptr + k[:, None] * SK + n[None, :] * SN,
            mask=(k < KH * KW * C)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        acc = _dot(tl.reshape(x, (BM, BK)), w, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + row * N + n, mask=n < N, other=0.0)[None, :]
    at = (row * M + m)[:, None] * N + n[None, :]
    tl.store(y_ptr + at, acc, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def _input_gradient(
    dy_ptr, w_ptr, bias_ptr, dx_ptr, M, tiles,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    BIAS: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx[m, c] = sum over kernel positions and filters of dy * w; m runs over input pixels.

    With BIAS, which a transposed convolution has, plus bias[c].
    """
    row = (tl.program_id(0) // tiles).to(tl.int64)
    m = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    bottom = m // W % H + PH
    right = m % W + PW
    image = m // (H * W)
    batch = M // (H * W)
    dy_ptr += row * batch * (OH * OW * N)
    w_ptr += row * (KH * KW * C * N)
    acc = tl.zeros((BM, BC), dtype=tl.float32)
    for place in range(KH * KW):
        down = bottom - place // KW
        across = right - place % KW
        oh = down // STRIDE
        ow = across // STRIDE
        inside = (m < M) & (down >= 0) & (oh < OH) & (across >= 0) & (ow < OW)
        if STRIDE > 1:
            inside = inside & (down % STRIDE == 0) & (across % STRIDE == 0)
        pixel = ((image * OH + oh) * OW + ow) * N
        for start in tl.static_range(0, N, BK):
            n = start + tl.arange(0, BK)
            dy = tl.load(
                dy_ptr + pixel[:, None] + n[None, :],
                mask=inside[:, None] & (n < N)[None, :],
                other=0.0,
            )
            w = tl.load(
                w_ptr + (place * C + c)[None, :] * N + n[:, None],
                mask=(n < N)[:, None] & (c < C)[None, :],
                other=0.0,
            )
            acc = _dot(dy, w, acc, PRECISION)
    if BIAS:
        acc += tl.load(bias_ptr + row * C + c, mask=c < C, other=0.0)[None, :]
    at = (row * M + m)[:, None] * C + c[None, :]
    tl.store(dx_ptr + at, acc, mask=(m < M)[:, None] & (c < C)[None, :])


@triton.jit
def _weight_gradient(
    x_ptr, dy_ptr, dw_ptr, db_ptr, M, rows,
    lr_ptr, last_w_ptr, last_b_ptr, decay, momentum, STEP: tl.constexpr, MOMENTUM: tl.constexpr,
    BIAS: tl.constexpr, SHARE: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dw[k, n] = sum over output pixels of x * dy, and db[n]; a part of the pixels a program.

    With STEP there is one part, and dw and db are the weights and biases, which take a step.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * (BK // C) + tl.arange(0, BK // C)
    part = tl.program_id(2)
    n = tl.arange(0, BN)
    c = tl.arange(0, C)
    offset = ((place // KW) * W + place % KW) * C
    batch = M // (OH * OW)
    x_ptr += row * batch * (H * W * C)
    dy_ptr += row * M * N
    acc = tl.zeros((BK, BN), dtype=tl.float32)
    sums = tl.zeros((BN,), dtype=tl.float32)
    for start in range(0, SHARE, BM):
        m = part * SHARE + start + tl.arange(0, BM)
        top = (m // OW % OH) * STRIDE - PH
        left = (m % OW) * STRIDE - PW
        corner = (((m // (OH * OW)) * H + top) * W + left) * C
        inside = _inside(top, left, place, H, W, KH, KW) & (m < M)[:, None]
        pixel = corner[:, None] + offset[None, :]
        x = tl.load(
            x_ptr + pixel[:, :, None] + c[None, None, :], mask=inside[:, :, None], other=0.0
        )
        dy = tl.load(
            dy_ptr + m[:, None] * N + n[None, :],
            mask=(m < M)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        acc = _dot(tl.trans(tl.reshape(x, (BM, BK))), dy, acc, PRECISION)
        if BIAS:
            sums += tl.sum(dy, axis=0)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    here = part * rows + row
    at = here * (KH * KW * C * N) + k[:, None] * N + n[None, :]
    real = (k < KH * KW * C)[:, None] & (n < N)[None, :]
    if STEP:
        lr = tl.load(lr_ptr + row)
        apply_descent(dw_ptr, last_w_ptr, at, acc, real, lr, decay, momentum, MOMENTUM)
        if BIAS and tl.program_id(1) == 0:
            at_n = here * N + n
            apply_descent(db_ptr, last_b_ptr, at_n, sums, n < N, lr, decay, momentum, MOMENTUM)
    else:
        tl.store(dw_ptr + at, acc, mask=real)
        if BIAS and tl.program_id(1) == 0:
            tl.store(db_ptr + here * N + n, sums, mask=n < N)


TUNING: dict[str, dict[str, int]] = {
    "forward": {"BM": 256, "num_warps": 4, "num_stages": 3},
    "narrow": {"BM": 256, "BK": 32, "num_warps": 4, "num_stages": 2},
    "input": {"BM": 256, "num_warps": 8, "num_stages": 3},
    "weight": {"BM": 64, "BK": 128, "num_warps": 4, "num_stages": 1},
}  # measured on an H200 by benchmarks/tune_kernels.py
SHARED = 227 << 10  # bytes that a program may share between its threads


def _block(size: int, most: int) -> int:
    """A power of two from 16 to `most` that covers `size` if it can."""
    return max(16, min(most, int(triton.next_power_of_2(size))))


def _pixels_at_once(rows: int, pixels: int, most: int) -> int:
    """Output pixels of one program: fewer where the programs would not fill the chip."""
    block = _block(pixels, most)
    while block > 64 and rows * triton.cdiv(pixels, block) < 256:
        block //= 2
    return block


def _stages(options: dict[str, int], width: int, depth: int) -> int:
    """How many loads of [BM, BK] and [BK, width], over all of `depth`, fit beside each other."""
    tiles = options["BM"] * options["BK"] + options["BK"] * width
    loads = 4 * tiles * int(triton.cdiv(depth, options["BK"]))
    return max(1, min(options["num_stages"], SHARED // loads))


def forward(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, shape: Geometry, precision: str
) -> None:
    """y = convolution of x with each row's own weights; tiles load fastest with filters first."""
    rows, batch = x.shape[:2]
    pixels = batch * shape.out[0] * shape.out[1]
    narrow = shape.channels < 16
    options = dict(TUNING["narrow" if narrow else "forward"])
    options["SK"], options["SN"] = w.stride()[-2:]  # channels of one place, filters
    options["BM"] = _pixels_at_once(rows, pixels, options["BM"])
    options["BN"] = _block(shape.filters, 64)
    options["BK"] = max(options["BK"], shape.channels) if narrow else _block(shape.channels, 32)
    options["num_stages"] = _stages(options, options["BN"], 1 if narrow else shape.channels)
    tiles = triton.cdiv(pixels, options["BM"])
    grid = (rows * tiles, triton.cdiv(shape.filters, options["BN"]))
    kernel = _forward_narrow if narrow else _forward
    options |= {**shape.constants(), "BIAS": bias is not None}
    kernel[grid](
        x, w, w if bias is None else bias, y, pixels, tiles, **options, PRECISION=precision
    )


def input_gradient(
    dy: Tensor, w: Tensor, bias: Tensor | None, dx: Tensor, shape: Geometry, precision: str
) -> None:
    """dx = gradient of the convolution's input; as a transposed convolution of dy with a bias."""
    rows, batch = dx.shape[:2]
    pixels = batch * shape.height * shape.width
    options = dict(TUNING["input"])
    options["BM"] = _pixels_at_once(rows, pixels, options["BM"])
    options["BC"] = _block(shape.channels, 64)
    options["BK"] = _block(shape.filters, 32)
    options["num_stages"] = _stages(options, options["BC"], shape.filters)
    tiles = triton.cdiv(pixels, options["BM"])
    grid = (rows * tiles, triton.cdiv(shape.channels, options["BC"]))
    options |= {**shape.constants(), "BIAS": bias is not None}
    _input_gradient[grid](
        dy, w, w if bias is None else bias, dx, pixels, tiles, **options, PRECISION=precision
    )


def _weight_block(shape: Geometry) -> int:
    places = int(triton.next_power_of_2(shape.kernel[0] * shape.kernel[1]))
    return max(16, shape.channels, min(TUNING["weight"]["BK"], places * shape.channels))


def weight_parts(rows: int, batch: int, shape: Geometry) -> int:
    """Into how many parts the pixels are cut, so that few rows still fill the chip."""
    size = shape.kernel[0] * shape.kernel[1] * shape.channels
    pixels = batch * shape.out[0] * shape.out[1]
    programs = rows * int(triton.cdiv(size, _weight_block(shape)))
    return max(1, min(16, 512 // max(programs, 1), pixels // 256))


def weight_gradient(
    x: Tensor,
    dy: Tensor,
    to: Weights,
    shape: Geometry,
    precision: str,
    descent: Descent | None = None,
) -> None:
    """Partial gradients [parts, rows, ...] of weights and bias, to be added up.

    With `descent` they are not stored: `to` are the weights themselves, and take a step of SGD.
    """
    rows, batch = x.shape[:2]
    pixels = batch * shape.out[0] * shape.out[1]
    size = shape.kernel[0] * shape.kernel[1] * shape.channels
    options = dict(TUNING["weight"])
    options["BK"] = _weight_block(shape)
    options["BM"] = max(16, min(options["BM"], 8192 // options["BK"]))
    options["BN"] = _block(shape.filters, 1024)
    w, b = to if descent is None or descent.bias else (to[0], None)
    parts = 1 if descent else len(w)
    share = triton.cdiv(triton.cdiv(pixels, parts), options["BM"]) * options["BM"]
    grid = (rows, triton.cdiv(size, options["BK"]), parts)
    _weight_gradient[grid](
        x,
        dy,
        w,
        w if b is None else b,
        pixels,
        rows,
        x if descent is None else descent.lr,
        *((w, w) if descent is None else descent.places(w)),
        0.0 if descent is None else descent.decay,
        0.0 if descent is None else descent.momentum,
        descent is not None,
        descent is not None and descent.last is not None,
        b is not None,
        share,
        **shape.constants(),
        **options,
        PRECISION=precision,
    )


def padded(channels: int, least: int = 4) -> int:
    """Channels as the kernels store them: a power of two; a convolution wants at least 4."""
    return max(least, int(triton.next_power_of_2(channels)))
