"""ResNet8: the residual network of the FACADE thesis, with batch norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from coterie.models.convolutional import _image
from coterie.models.registry import Model, Shape, models


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(filters)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Network(nn.Module):
    """Stem, three blocks, average, linear."""

    head = ("layer2", "layer3", "linear")

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.layer1 = Block(32, 32, 1)
        self.layer2 = Block(32, 64, 2)
        self.layer3 = Block(64, 128, 2)
        self.linear = nn.Linear(128, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = F.relu(self.norm(self.conv(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


@models.register("resnet8")
@dataclass(frozen=True)
class ResNet8(Model):
    """ResNet8 with batch norm (the thesis's Flickr model): all from block 2 on is the head."""

    def build(self, shape: Shape) -> nn.Module:
        channels, _, _ = _image("resnet8", shape, 8)
        return Network(channels, shape.outputs)
