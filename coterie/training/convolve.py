"""Convolutions of stacked models on the kernels of the fused path, for any module under `vmap`.

`vmap` makes one grouped convolution of those of all rows, and cuDNN is slow at many groups. While
`OwnConvolutions` is on, `conv2d` goes to kernels that know rows; what they cannot do stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from coterie.training.kernels import PRECISIONS, convolution
from coterie.training.kernels.convolution import Geometry, padded

WIDEST = 128  # channels or filters of a convolution whose tiles fit the memory of a GPU's program
NARROWEST = 8  # filters of a group; a product of 16 columns would be mostly padding
LARGEST = 1 << 31  # numbers of one row that a kernel can count
Sides = tuple[int, int]
Places = tuple[int, int, int, int, int]  # stride, and what is around an image
Dims = tuple[int | None, ...]


class OwnConvolutions(TorchFunctionMode):
    """While it is on, convolutions of images with two axes run on the kernels where they can."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self.precision = PRECISIONS[precision]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is torch.conv2d:
            return _conv2d(self.precision, *args, **given)
        return func(*args, **given)


def _conv2d(
    precision: str,
    input: Tensor,  # as torch calls them
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """What `torch.conv2d` gives: groups are rows of models of their own."""
    steps, apart = _pair(stride), _pair(dilation)
    if not _fits(input, weight, groups) or steps[0] != steps[1] or apart != (1, 1):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    x = input.unflatten(1, (groups, -1)).transpose(0, 1)  # [groups, batch, channels, ...]
    w = weight.unflatten(0, (groups, -1))
    b = None if bias is None else bias.unflatten(0, (groups, -1))
    places = (steps[0], *_around(padding, (weight.shape[2], weight.shape[3])))
    y = _convolve(x, w, b, places, precision)
    return y.transpose(0, 1).flatten(1, 2)


def _fits(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether the kernels can do it, and are made for it."""
    images = x.ndim == 4 and x.dtype == weight.dtype == torch.float32 and x.numel() > 0
    channels, filters = weight.shape[1], weight.shape[0] // groups
    widest = padded(max(channels, filters))
    small = widest <= WIDEST and x.numel() // channels * widest < LARGEST
    return images and small and (groups == 1 or filters >= NARROWEST)


def _pair(sizes: int | Sequence[int]) -> Sides:
    if isinstance(sizes, int):
        return sizes, sizes
    return sizes[0], sizes[-1]


def _around(padding: str | int | Sequence[int], kernel: Sides) -> tuple[int, int, int, int]:
    """Above and at the left, then what comes below and at the right besides as much."""
    if not isinstance(padding, str):
        return (*_pair(padding), 0, 0)
    if padding == "valid":
        return 0, 0, 0, 0
    down, across = kernel[0] - 1, kernel[1] - 1
    return down // 2, across // 2, down % 2, across % 2


class _Convolution(torch.autograd.Function):
    """y [r, b, o, ...] of x [r, b, c, ...], w [r, o, c, ...] and a bias [r, o]."""

    @staticmethod
    def forward(
        x: Tensor, w: Tensor, bias: Tensor | None, places: Places, precision: str
    ) -> Tensor:
        pixels = _by_pixel(x)
        shape = _geometry(pixels, w, places)
        by_filter = _by_pixel(w, shape.filters)  # [r, filters, kh, kw, channels]
        b = None if bias is None else F.pad(bias, (0, shape.filters - w.shape[1])).contiguous()
        y = x.new_empty(*x.shape[:2], *shape.out, shape.filters)
        convolution.forward(pixels, by_filter.permute(0, 2, 3, 4, 1), b, y, shape, precision)
        return _by_channel(y, w.shape[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, w, bias, ctx.places, ctx.precision = inputs
        ctx.save_for_backward(x, w)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        use = (ctx.places, ctx.precision)
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = _gradient_of_input(dy, w, x.shape[-2:], *use)
        if any(ctx.needs_input_grad[1:3]):
            dw, db = _gradients_of_weights(x, dy, w.shape[-2:], *use)
        return dx, dw, db if ctx.biased else None, None, None

    @staticmethod
    def vmap(info: Any, dims: Dims, *args: Any) -> tuple[Tensor, int]:
        y = _convolve(*_merged(info, dims, args))
        return y.unflatten(0, (info.batch_size, -1)), 0


class _InputGradient(torch.autograd.Function):
    """dx [r, b, c, ...] of dy [r, b, o, ...] and w."""

    @staticmethod
    def forward(dy: Tensor, w: Tensor, sides: Sides, places: Places, precision: str) -> Tensor:
        rows, batch, channels = *dy.shape[:2], w.shape[2]
        dx = dy.new_empty(rows, batch, *sides, padded(channels))
        shape = _geometry(dx, w, places)
        convolution.input_gradient(_by_pixel(dy), _packed(w, shape), None, dx, shape, precision)
        return _by_channel(dx, channels)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        return None  # nobody asks for second derivatives

    @staticmethod
    def vmap(info: Any, dims: Dims, *args: Any) -> tuple[Tensor, int]:
        dx = _gradient_of_input(*_merged(info, dims, args))
        return dx.unflatten(0, (info.batch_size, -1)), 0


class _WeightGradient(torch.autograd.Function):
    """dw [r, o, c, ...] and db [r, o] of x and dy."""

    @staticmethod
    def forward(
        x: Tensor, dy: Tensor, kernel: Sides, places: Places, precision: str
    ) -> tuple[Tensor, Tensor]:
        pixels = _by_pixel(x)
        rows, filters, channels = len(x), dy.shape[2], x.shape[2]
        shape = _geometry(pixels, x.new_empty(rows, filters, channels, *kernel), places)
        parts = convolution.weight_parts(rows, x.shape[1], shape)
        dw = x.new_empty(parts, rows, *kernel, shape.channels, shape.filters)
        db = x.new_empty(parts, rows, shape.filters)
        convolution.weight_gradient(pixels, _by_pixel(dy), (dw, db), shape, precision)
        whole = dw.sum(0)[..., :channels, :filters].permute(0, 4, 3, 1, 2)
        return whole, db.sum(0)[:, :filters]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        return None  # nobody asks for second derivatives

    @staticmethod
    def vmap(info: Any, dims: Dims, *args: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        dw, db = _gradients_of_weights(*_merged(info, dims, args))
        size = (info.batch_size, -1)
        return (dw.unflatten(0, size), db.unflatten(0, size)), (0, 0)


_convolve: Callable[..., Tensor] = _Convolution.apply
_gradient_of_input: Callable[..., Tensor] = _InputGradient.apply
_gradients_of_weights: Callable[..., tuple[Tensor, Tensor]] = _WeightGradient.apply


def _merged(info: Any, dims: Dims, args: tuple[Any, ...]) -> list[Any]:
    """The mapped axis becomes more rows of every tensor; one that is not mapped is repeated."""
    return [
        _more_rows(info.batch_size, value, axis) if isinstance(value, Tensor) else value
        for value, axis in zip(args, dims, strict=True)
    ]


def _more_rows(size: int, tensor: Tensor, axis: int | None) -> Tensor:
    whole = tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
    return whole.flatten(0, 1)


def _geometry(pixels: Tensor, w: Tensor, places: Places) -> Geometry:
    """The shapes of a convolution of images [r, b, height, width, padded channels]."""
    stride, down, across, below, right = places
    height, width, channels = pixels.shape[2:]
    kernel = w.shape[3], w.shape[4]
    filters = padded(w.shape[1])
    return Geometry(
        height, width, channels, filters, kernel, stride, (down, across), (below, right)
    )


def _by_pixel(x: Tensor, rows: int | None = None) -> Tensor:
    """[r, b, c, h, w] as the kernels store it: [r, b, h, w, padded c]; with `rows` padded b too."""
    more = padded(x.shape[2]) - x.shape[2]
    below = 0 if rows is None else rows - x.shape[1]
    pixels = x.permute(0, 1, 3, 4, 2)
    if not more and not below:
        return pixels.contiguous()
    return F.pad(pixels, (0, more, 0, 0, 0, 0, 0, below)).contiguous()


def _packed(w: Tensor, shape: Geometry) -> Tensor:
    """[r, o, c, kh, kw] as [r, kh, kw, padded c, padded o]."""
    more = (0, shape.filters - w.shape[1], 0, shape.channels - w.shape[2])
    return F.pad(w.permute(0, 3, 4, 2, 1), more).contiguous()


def _by_channel(pixels: Tensor, channels: int) -> Tensor:
    """[r, b, h, w, padded c] as [r, b, c, h, w]; in this order, which norms under `vmap` need."""
    return pixels[..., :channels].permute(0, 1, 4, 2, 3).contiguous()
