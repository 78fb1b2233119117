"""A convolutional autoencoder for reconstruction."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from coterie.errors import InputError
from coterie.models.convolutional import _image
from coterie.models.registry import Model, Shape, models, named_head


@models.register("autoencoder")
@dataclass(frozen=True)
class Autoencoder(Model):
    """Two convolutions of LeNet-5 and their mirror image (for objective 'reconstruction')."""

    unit: bool = False  # outputs in 0..1, for pixels that are (data set 'union' with unit = true)

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("autoencoder", shape, 12)
        if height % 4 or width % 4:
            raise InputError(f"model 'autoencoder' needs sides divisible by 4, got {shape.sample}")
        encoder = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        decoder = nn.Sequential(
            nn.Upsample(scale_factor=2),
            nn.ConvTranspose2d(16, 6, 5),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(6, channels, 5, padding=2),
            *([nn.Sigmoid()] if self.unit else []),
        )
        module = nn.Sequential()
        module.add_module("encoder", encoder)
        module.add_module("decoder", decoder)
        return named_head(module, "decoder")
