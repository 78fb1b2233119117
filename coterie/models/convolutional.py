"""Small convolutional networks of the papers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from coterie.errors import InputError
from coterie.models.registry import Model, Shape, models, named_head


def _image(name: str, shape: Shape, smallest: int) -> tuple[int, int, int]:
    """Channels, height, width; InputError where the samples are no images of that size."""
    if len(shape.sample) != 3 or min(shape.sample[1:]) < smallest:
        raise InputError(
            f"model {name!r} needs images of at least {smallest}x{smallest}, got samples of shape "
            f"{shape.sample}; for tables use 'mlp' or 'logistic'"
        )
    channels, height, width = shape.sample
    return channels, height, width


def _block(channels: int, filters: int, kernel: int) -> list[tuple[str, nn.Module]]:
    return [
        ("conv", nn.Conv2d(channels, filters, kernel, padding=kernel // 2)),
        ("norm", nn.GroupNorm(2, filters)),
        ("relu", nn.ReLU()),
        ("pool", nn.MaxPool2d(2)),
    ]


def _sequence(blocks: list[list[tuple[str, nn.Module]]], last: nn.Module) -> nn.Module:
    layers = OrderedDict(
        (f"{name}{number}", layer)
        for number, block in enumerate(blocks, 1)
        for name, layer in block
    )
    layers["flatten"] = nn.Flatten()
    layers["fc"] = last
    return named_head(nn.Sequential(layers), "fc")


@models.register("lenet")
@dataclass(frozen=True)
class LeNet(Model):
    """The LeNet of the FACADE thesis: three 5x5 convolutions with GroupNorm, one linear head."""

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("lenet", shape, 8)
        blocks = [_block(channels, 32, 5), _block(32, 32, 5), _block(32, 64, 5)]
        return _sequence(blocks, nn.Linear(64 * (height // 8) * (width // 8), shape.outputs))


@models.register("small-cnn")
@dataclass(frozen=True)
class SmallCNN(Model):
    """Two 3x3 convolutions with GroupNorm and one linear head, for tiny images."""

    width: int = 16  # filters of the first layer; the second has twice as many

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("small-cnn", shape, 4)
        blocks = [_block(channels, self.width, 3), _block(self.width, 2 * self.width, 3)]
        features = 2 * self.width * (height // 4) * (width // 4)
        return _sequence(blocks, nn.Linear(features, shape.outputs))


@models.register("lenet5")
@dataclass(frozen=True)
class LeNet5(Model):
    """LeNet-5 for 28x28 images: two 5x5 convolutions, three linear layers, the last the head."""

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("lenet5", shape, 12)
        rows, columns = (height // 2 - 4) // 2, (width // 2 - 4) // 2
        layers = OrderedDict(
            conv1=nn.Conv2d(channels, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * rows * columns, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
            fc3=nn.Linear(84, shape.outputs),
        )
        return named_head(nn.Sequential(layers), "fc3")


@models.register("cnn")
@dataclass(frozen=True)
class CNN(Model):
    """The CNN of PPDL: 3x3 convolutions without padding, two linear layers, the last the head."""

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("cnn", shape, 10)
        filters = [32, 64, 64] if channels == 3 else [16, 32]
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, count in enumerate(filters, 1):
            layers[f"conv{number}"] = nn.Conv2d(channels, count, 3)
            layers[f"relu{number}"] = nn.ReLU()
            layers[f"pool{number}"] = nn.MaxPool2d(2)
            channels, height, width = count, (height - 2) // 2, (width - 2) // 2
        if min(height, width) < 1:
            raise InputError(f"model 'cnn' needs larger images, got samples of {shape.sample}")
        layers["flatten"] = nn.Flatten()
        layers["fc1"] = nn.Linear(channels * height * width, 64)
        layers["relu"] = nn.ReLU()
        layers["fc2"] = nn.Linear(64, shape.outputs)
        return named_head(nn.Sequential(layers), "fc2")
