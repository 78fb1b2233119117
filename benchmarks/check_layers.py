"""Is every kind of layer right on this GPU? The part of check_kernels.py that looks at layers.

Forward and backward of each kernel against a float64 reference on fresh random inputs.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.training.kernels import activation, convolution, dense

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {"ieee": 1e-5, "tf32": 5e-3, "bf16": 3e-2}
GEOMETRIES = [
    convolution.Geometry(32, 32, 4, 32, (5, 5), 1, (2, 2)),
    convolution.Geometry(16, 16, 32, 32, (5, 5), 1, (2, 2)),
    convolution.Geometry(8, 8, 32, 64, (5, 5), 1, (2, 2)),
    convolution.Geometry(13, 11, 8, 16, (3, 2), 2, (1, 0)),
    convolution.Geometry(9, 10, 8, 16, (2, 4), 1, (0, 1), (1, 1)),
]
TRANSPOSED = [  # the convolutions that go the other way
    convolution.Geometry(14, 14, 8, 16, (5, 5), 1, (0, 0)),
    convolution.Geometry(16, 15, 32, 16, (4, 3), 2, (1, 1)),
    convolution.Geometry(12, 9, 4, 64, (3, 2), 2, (1, 0)),
]
STAGES = [
    activation.Stage(32, 32, 32, 32, 2, True, "relu", "max", 1e-5),
    activation.Stage(8, 8, 64, 64, 2, True, "relu", "", 1e-5),
    activation.Stage(10, 10, 16, 16, 1, False, "relu", "max"),
    activation.Stage(7, 7, 64, 64, 2, True, "relu", "max", 1e-5),
    activation.Stage(7, 10, 16, 16, 2, True, "relu", "mean", 1e-5),
    activation.Stage(9, 11, 16, 16, 1, False, "", "mean"),
    activation.Stage(28, 28, 4, 1, 1, False, "sigmoid", ""),
    activation.Stage(9, 11, 8, 6, 3, True, "sigmoid", "max", 1e-5),
    activation.Stage(10, 7, 16, 12, 1, False, "sigmoid", "mean"),
]
POOLS = {"max": F.max_pool2d, "mean": F.avg_pool2d}
ACTIVATIONS = {"": lambda x: x, "relu": F.relu, "sigmoid": F.sigmoid}


def error(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted).norm() / wanted.norm())


def new(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def check_convolution(shape: convolution.Geometry, precision: str) -> dict[str, float]:
    rows, batch = 3, 5
    x = new(rows, batch, shape.height, shape.width, shape.channels)
    w = new(rows, *shape.kernel, shape.channels, shape.filters)
    b, dy = new(rows, shape.filters), new(rows, batch, *shape.out, shape.filters)
    y, dx = torch.full_like(dy, torch.nan), torch.full_like(x, torch.nan)
    parts = convolution.weight_parts(rows, batch, shape)
    dw, db = new(parts, *w.shape), new(parts, *b.shape)
    convolution.forward(x, w, b, y, shape, precision)
    by_filter = w.permute(0, 4, 1, 2, 3).contiguous().permute(0, 2, 3, 4, 1)
    scored = torch.full_like(y, torch.nan)
    convolution.forward(x, by_filter, b, scored, shape, precision)
    convolution.input_gradient(dy, w, None, dx, shape, precision)
    convolution.weight_gradient(x, dy, (dw, db), shape, precision)
    worst = dict.fromkeys(("forward", "scored", "input", "weight", "bias"), 0.0)
    for row in range(rows):
        image = x[row].double().permute(0, 3, 1, 2).requires_grad_()
        weight = w[row].double().permute(3, 2, 0, 1).requires_grad_()
        bias = b[row].double().requires_grad_()
        (top, left), (below, right) = shape.padding, shape.more
        wide = F.pad(image, (left, left + right, top, top + below))
        out = F.conv2d(wide, weight, bias, shape.stride)
        grads = torch.autograd.grad(
            out, (image, weight, bias), dy[row].double().permute(0, 3, 1, 2)
        )
        pairs = {
            "forward": (y[row], out.permute(0, 2, 3, 1)),
            "scored": (scored[row], out.permute(0, 2, 3, 1)),
            "input": (dx[row], grads[0].permute(0, 2, 3, 1)),
            "weight": (dw.sum(0)[row], grads[1].permute(2, 3, 1, 0)),
            "bias": (db.sum(0)[row], grads[2]),
        }
        for name, (got, wanted) in pairs.items():
            worst[name] = max(worst[name], error(got, wanted.detach()))
    return worst


def check_transposed(shape: convolution.Geometry, precision: str) -> dict[str, float]:
    """The kernels of a convolution with their roles exchanged."""
    rows, batch = 3, 5
    x = new(rows, batch, *shape.out, shape.filters)
    w = new(rows, *shape.kernel, shape.channels, shape.filters)
    b, dy = new(rows, shape.channels), new(rows, batch, shape.height, shape.width, shape.channels)
    y, dx = torch.full_like(dy, torch.nan), torch.full_like(x, torch.nan)
    dw = new(convolution.weight_parts(rows, batch, shape), *w.shape)
    convolution.input_gradient(x, w, b, y, shape, precision)
    convolution.forward(dy, w, None, dx, shape, precision)
    convolution.weight_gradient(dy, x, (dw, None), shape, precision)
    worst = {"forward": 0.0, "input": 0.0, "weight": 0.0}
    for row in range(rows):
        image = x[row].double().permute(0, 3, 1, 2).requires_grad_()
        weight = w[row].double().permute(3, 2, 0, 1).requires_grad_()
        sides = (*shape.kernel, *shape.padding, *shape.out, shape.height, shape.width)
        kh, kw, ph, pw, h, v, oh, ow = sides
        more = (
            oh + 2 * ph - kh - (h - 1) * shape.stride,
            ow + 2 * pw - kw - (v - 1) * shape.stride,
        )
        out = F.conv_transpose2d(image, weight, b[row].double(), shape.stride, (ph, pw), more)
        grads = torch.autograd.grad(out, (image, weight), dy[row].double().permute(0, 3, 1, 2))
        pairs = {
            "forward": (y[row], out.permute(0, 2, 3, 1)),
            "input": (dx[row], grads[0].permute(0, 2, 3, 1)),
            "weight": (dw.sum(0)[row], grads[1].permute(2, 3, 1, 0)),
        }
        for name, (got, wanted) in pairs.items():
            worst[name] = max(worst[name], error(got, wanted.detach()))
    return worst


def check_stage(stage: activation.Stage) -> dict[str, float]:
    rows, batch, real = 3, 4, stage.real
    y = new(rows, batch, stage.height, stage.width, stage.channels)
    y[..., real:] = 0
    gamma, beta = new(rows, real), new(rows, real)
    out = torch.zeros(rows, batch, *stage.out, stage.channels, device=DEVICE)
    dout, dy = torch.randn_like(out), torch.zeros_like(y)
    dout[..., real:] = 0
    stats = (new(rows * batch * stage.groups), new(rows * batch * stage.groups))
    partial = (new(rows, batch, real), new(rows, batch, real))
    scale = (gamma, beta) if stage.norm else None
    activation.forward(y, scale, out, stats, stage)
    activation.backward(y, scale, dout, stats, dy, partial, stage)
    worst = {"forward": 0.0, "input": 0.0, "gamma": 0.0, "beta": 0.0}
    worst["padding"] = float(out[..., real:].abs().sum() + dy[..., real:].abs().sum())
    for row in range(rows):
        image = y[row, ..., :real].double().permute(0, 3, 1, 2).requires_grad_()
        g, b = (part[row].double().requires_grad_() for part in (gamma, beta))
        z = F.group_norm(image, stage.groups, g, b, stage.eps) if stage.norm else image
        z = ACTIVATIONS[stage.activation](z)
        z = POOLS[stage.pool](z, 2) if stage.pool else z
        given = dout[row, ..., :real].double().permute(0, 3, 1, 2)
        wanted = torch.autograd.grad(z, (image, g, b), given, allow_unused=True)
        pairs = {"forward": (out[row], z), "input": (dy[row], wanted[0])}
        for name, (got, right) in pairs.items():
            apart = error(got[..., :real], right.detach().permute(0, 2, 3, 1))
            worst[name] = max(worst[name], apart)
        if stage.norm:
            for name, got, right in zip(("gamma", "beta"), partial, wanted[1:], strict=True):
                worst[name] = max(worst[name], error(got[row].sum(0), right))
    return worst


def check_dense(precision: str, act: str) -> float:
    x, w, b, y = new(5, 8, 1024), new(5, 1024, 10), new(5, 1, 10), new(5, 8, 10)
    w /= 32
    dense.forward(x, w, b, y, act, precision)
    return error(y, ACTIVATIONS[act](torch.baddbmm(b.double(), x.double(), w.double())))


class Tally:
    """Prints cases and counts those that failed."""

    failed = 0

    def __call__(self, name: str, value: float, limit: float) -> None:
        good = value <= limit
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name:<60} {value:.2e}", flush=True)


def check_layers(report: Tally) -> None:
    """Report on all kinds of layers."""
    for shape, (precision, limit) in itertools.product(GEOMETRIES, LIMITS.items()):
        for name, value in check_convolution(shape, precision).items():
            size = f"{shape.height}x{shape.width}x{shape.channels}->{shape.filters}"
            report(f"convolution {size} {precision} {name}", value, limit)
    for shape, (precision, limit) in itertools.product(TRANSPOSED, LIMITS.items()):
        for name, value in check_transposed(shape, precision).items():
            size = f"{shape.filters}->{shape.height}x{shape.width}x{shape.channels}"
            report(f"transposed convolution {size} {precision} {name}", value, limit)
    for stage in STAGES:
        for name, value in check_stage(stage).items():
            size = f"{stage.height}x{stage.width}x{stage.channels}"
            report(f"stage {size} {stage.activation} {stage.pool} {name}", value, 1e-5)
    for (precision, limit), act in itertools.product(LIMITS.items(), ACTIVATIONS):
        report(f"dense {act} {precision}", check_dense(precision, act), limit)
