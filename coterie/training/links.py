"""The links of a chain for a fixed number of rows: buffers, forward and backward of each kind.

Channels that are padding are 0 in activations, weights and gradients, so that nobody sees them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coterie.training import chain
from coterie.training.kernels import activation, convolution, dense
from coterie.training.kernels.update import Descent
from coterie.training.task import Named


@dataclass(frozen=True)
class Gradient:
    """Packed weights, and their gradient in parts [parts, rows, ...] to be added up."""

    own: Tensor
    partial: Tensor
    inside: bool = False  # SGD may take its step where the gradient is made


class Layer(abc.ABC):
    """A link for all rows: makes `out` of `inputs`; of its channels, `real` are not padding."""

    inputs: Tensor
    out: Tensor
    real: int

    def packed(self) -> list[Tensor]:
        """The weights as the kernels store them, the weight before the bias; many have none."""
        return []

    def named(self, packed: list[Tensor]) -> Named:
        """Views of packed tensors under the module's names and in its shapes."""
        return {}

    @abc.abstractmethod
    def forward(self) -> None:
        """Fill `out`."""

    def allow_backward(self) -> None:
        """Make the buffers that only training needs."""
        return None

    @abc.abstractmethod
    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        """Fill `dinputs`; with `weights` make their gradients too, or take the step `descent`."""

    def gradients(self) -> list[Gradient]:
        """The gradients of what is packed."""
        return []


class ConvolutionLayer(Layer):
    """A convolution."""

    def __init__(self, link: chain.Convolution, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch, height, width, channels = inputs.shape
        layer, self.link, self.precision = link.layer, link, precision
        self.inputs, self.given, self.real = inputs, real, layer.out_channels
        filters, kernel = convolution.padded(layer.out_channels), _pair(layer.kernel_size)
        self.shape = convolution.Geometry(
            height, width, channels, filters, kernel, layer.stride[0], *_padding(layer)
        )
        by_filter = inputs.new_zeros(rows, filters, *kernel, channels)  # as `forward` likes it
        self.w = by_filter.permute(0, 2, 3, 4, 1)
        self.b = None if layer.bias is None else inputs.new_zeros(rows, filters)
        self.out = inputs.new_zeros(rows, batch, *self.shape.out, filters)

    def packed(self) -> list[Tensor]:
        return _present(self.w, self.b)

    def named(self, packed: list[Tensor]) -> Named:
        return _named(self.link.names, packed, (self.given, self.real), self.real)

    def forward(self) -> None:
        convolution.forward(self.inputs, self.w, self.b, self.out, self.shape, self.precision)

    def allow_backward(self) -> None:
        rows, batch = self.inputs.shape[:2]
        parts = convolution.weight_parts(rows, batch, self.shape)
        self.w = self.w.new_zeros(self.w.shape)  # as the backward pass reads and writes
        self.dw = self.w.new_zeros(parts, *self.w.shape)
        self.db = None if self.b is None else self.w.new_zeros(parts, *self.b.shape)

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        use = (self.shape, self.precision)
        if dinputs is not None:
            convolution.input_gradient(dout, self.w, None, dinputs, *use)
        if weights:
            to = (self.w, self.b) if descent else (self.dw, self.db)
            convolution.weight_gradient(self.inputs, dout, to, *use, descent)

    def gradients(self) -> list[Gradient]:
        inside = len(self.dw) == 1
        return _gradients((self.w, self.dw, inside), (self.b, self.db, inside))


class TransposedLayer(Layer):
    """A transposed convolution: the input gradient of a convolution that goes the other way.

    Its weights are packed as that convolution's, whose kernels run with exchanged roles.
    """

    def __init__(self, link: chain.Transposed, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch, height, width, channels = inputs.shape
        layer, self.link, self.precision = link.layer, link, precision
        self.inputs, self.given, self.real = inputs, real, layer.out_channels
        filters, kernel = convolution.padded(layer.out_channels), _pair(layer.kernel_size)
        sides = _enlarged((height, width), layer)
        self.shape = convolution.Geometry(
            *sides, filters, channels, kernel, layer.stride[0], *_padding(layer)
        )
        self.w = inputs.new_zeros(rows, *kernel, filters, channels)
        self.b = None if layer.bias is None else inputs.new_zeros(rows, filters)
        self.out = inputs.new_zeros(rows, batch, *sides, filters)

    def packed(self) -> list[Tensor]:
        return _present(self.w, self.b)

    def named(self, packed: list[Tensor]) -> Named:
        return _named(self.link.names, packed, (self.real, self.given), self.real)

    def forward(self) -> None:
        convolution.input_gradient(
            self.inputs, self.w, self.b, self.out, self.shape, self.precision
        )

    def allow_backward(self) -> None:
        rows, batch = self.inputs.shape[:2]
        parts = convolution.weight_parts(rows, batch, self.shape)
        self.dw = self.w.new_zeros(parts, *self.w.shape)
        self.db = None if self.b is None else torch.zeros_like(self.b)[None]

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        use = (self.shape, self.precision)
        if dinputs is not None:
            convolution.forward(dout, self.w, None, dinputs, *use)
        if weights and self.db is not None:
            torch.sum(dout, (1, 2, 3), out=self.db[0])
        if weights:
            to = (self.w if descent else self.dw, None)
            convolution.weight_gradient(dout, self.inputs, to, *use, descent)

    def gradients(self) -> list[Gradient]:
        return _gradients((self.w, self.dw, len(self.dw) == 1), (self.b, self.db, False))


class StageLayer(Layer):
    """Norm, activation and pool."""

    def __init__(self, link: chain.Stage, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch, height, width, channels = inputs.shape
        self.link, self.inputs, self.real = link, inputs, real
        groups, eps = (link.norm.num_groups, link.norm.eps) if link.norm else (1, 0.0)
        self.stage = activation.Stage(
            height,
            width,
            channels,
            real,
            groups,
            link.norm is not None,
            link.activation,
            link.pool,
            eps,
        )
        self.out = inputs.new_zeros(rows, batch, *self.stage.out, channels)
        new, images = inputs.new_zeros, rows * batch * groups
        self.scale = (new(rows, real), new(rows, real)) if link.norm else None
        self.stats = (new(images), new(images)) if link.norm else None

    def packed(self) -> list[Tensor]:
        return list(self.scale or ())

    def named(self, packed: list[Tensor]) -> Named:
        return dict(zip(self.link.names, packed, strict=True))

    def forward(self) -> None:
        activation.forward(self.inputs, self.scale, self.out, self.stats, self.stage)

    def allow_backward(self) -> None:
        new, size = self.inputs.new_zeros, (*self.inputs.shape[:2], self.real)
        self.by_sample = (new(size), new(size)) if self.scale else None

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        activation.backward(
            self.inputs, self.scale, dout, self.stats, dinputs, self.by_sample, self.stage
        )

    def gradients(self) -> list[Gradient]:
        pairs = zip(self.scale or (), self.by_sample or (), strict=True)
        return [Gradient(own, by_sample.transpose(0, 1)) for own, by_sample in pairs]


class EnlargeLayer(Layer):
    """Every pixel several times: torch's own operations, which only move memory."""

    def __init__(self, link: chain.Enlarge, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch, height, width, channels = inputs.shape
        down, across = link.factor
        self.inputs, self.real = inputs, real
        self.blocks = (rows, batch, height, down, width, across, channels)
        self.out = inputs.new_zeros(rows, batch, height * down, width * across, channels)

    def forward(self) -> None:
        self.out.view(self.blocks).copy_(self.inputs[:, :, :, None, :, None])

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        if dinputs is not None:
            torch.sum(dout.view(self.blocks), (3, 5), out=dinputs)


class AverageLayer(Layer):
    """The mean of all pixels."""

    def __init__(self, link: chain.Average, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch, height, width, channels = inputs.shape
        self.inputs, self.real, self.pixels = inputs, real, height * width
        self.out = inputs.new_zeros(rows, batch, 1, 1, channels)

    def forward(self) -> None:
        torch.mean(self.inputs, (2, 3), keepdim=True, out=self.out)

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        if dinputs is not None:
            torch.div(dout.expand_as(dinputs), self.pixels, out=dinputs)


class DenseLayer(Layer):
    """A linear layer with its activation."""

    def __init__(self, link: chain.Dense, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch = inputs.shape[:2]
        self.link, self.precision, self.given = link, precision, real
        self.pixels = inputs.shape[2] * inputs.shape[3] if inputs.ndim == 5 else 0
        self.inputs, self.real = inputs.view(rows, batch, -1), link.layer.out_features
        self.w = inputs.new_zeros(rows, self.inputs.shape[2], self.real)
        self.b = None if link.layer.bias is None else inputs.new_zeros(rows, 1, self.real)
        self.out = inputs.new_zeros(rows, batch, self.real)

    def packed(self) -> list[Tensor]:
        return _present(self.w, self.b)

    def named(self, packed: list[Tensor]) -> Named:
        weight = packed[0].transpose(1, 2)
        if self.pixels:  # features of the module are (channel, pixel), ours (pixel, channel)
            by_pixel = packed[0].unflatten(1, (self.pixels, -1))[:, :, : self.given]
            weight = by_pixel.permute(0, 3, 2, 1)
        bias = [part[:, 0] for part in packed[1:]]
        return dict(zip(self.link.names, [weight, *bias], strict=True))

    def forward(self) -> None:
        act = self.link.activation
        dense.forward(self.inputs, self.w, self.b, self.out, act, self.precision)

    def allow_backward(self) -> None:
        self.dw = torch.zeros_like(self.w)[None]
        self.db = None if self.b is None else torch.zeros_like(self.b)[None]

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: Descent | None
    ) -> None:
        if self.link.activation:
            dout.mul_(SLOPES[self.link.activation](self.out))
        if dinputs is not None:
            torch.bmm(dout, self.w.transpose(1, 2), out=dinputs)
        if weights and descent:
            dense.weight_step(self.inputs, dout, (self.w, self.b), self.precision, descent)
        elif weights:
            torch.bmm(self.inputs.transpose(1, 2), dout, out=self.dw[0])
            if self.db is not None:
                torch.sum(dout, 1, keepdim=True, out=self.db[0])

    def gradients(self) -> list[Gradient]:
        return _gradients((self.w, self.dw, True), (self.b, self.db, True))


SLOPES: dict[str, Callable[[Tensor], Tensor]] = {  # of activations, by what they gave
    "relu": lambda out: out > 0,
    "sigmoid": lambda out: out * (1 - out),
}
LAYERS: dict[type[chain.Link], Callable[..., Layer]] = {
    chain.Convolution: ConvolutionLayer,
    chain.Transposed: TransposedLayer,
    chain.Stage: StageLayer,
    chain.Enlarge: EnlargeLayer,
    chain.Average: AverageLayer,
    chain.Dense: DenseLayer,
}


def _present(*parts: Tensor | None) -> list[Tensor]:
    """Those that are there: a layer may have no bias."""
    return [part for part in parts if part is not None]


def _named(
    names: tuple[str, ...], packed: list[Tensor], sizes: tuple[int, int], filters: int
) -> Named:
    """A convolution's packed weight, of these channels and filters, and its bias, if it has one."""
    weight = packed[0][..., : sizes[0], : sizes[1]].permute(0, 4, 3, 1, 2)
    bias = [part[:, :filters] for part in packed[1:]]
    return dict(zip(names, [weight, *bias], strict=True))


def _gradients(*triples: tuple[Tensor | None, Tensor | None, bool]) -> list[Gradient]:
    """Of what is there."""
    return [
        Gradient(own, partial, inside)
        for own, partial, inside in triples
        if own is not None and partial is not None
    ]


def _pair(sizes: tuple[int, ...]) -> tuple[int, int]:
    down, across = sizes
    return down, across


def _padding(
    layer: nn.Conv2d | nn.ConvTranspose2d,
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Above and at the left, and what comes below and at the right besides as much."""
    if not isinstance(layer.padding, str):
        return (layer.padding[0], layer.padding[1]), (0, 0)
    if layer.padding == "valid":
        return (0, 0), (0, 0)
    down, across = (size - 1 for size in layer.kernel_size)
    return (down // 2, across // 2), (down % 2, across % 2)


def _enlarged(sides: tuple[int, int], layer: nn.ConvTranspose2d) -> tuple[int, int]:
    """Height and width that a transposed convolution gives."""
    (padding, _), stride, more = _padding(layer), layer.stride[0], layer.output_padding
    down, across = (
        (sides[axis] - 1) * stride - 2 * padding[axis] + layer.kernel_size[axis] + more[axis]
        for axis in (0, 1)
    )
    return down, across
