"""The models of LEAF (Caldas et al., 2018), for its data sets."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.errors import InputError
from coterie.models.convolutional import _image
from coterie.models.registry import Model, Shape, models, named_head


@models.register("leaf-femnist")
@dataclass(frozen=True)
class LeafFemnist(Model):
    """LEAF's FEMNIST model: two 5x5 convolutions, two linear layers; FedAvg's with hidden = 512."""

    hidden: int = 2048  # width of the first linear layer
    port: bool = False  # as FedCG's authors have it: convolutions and pools padded by one

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("leaf-femnist", shape, 4)
        around, aside = (1, 1) if self.port else (2, 0)  # of a convolution, of a pool
        layers = OrderedDict(
            conv1=nn.Conv2d(channels, 32, 5, padding=around),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2, padding=aside),
            conv2=nn.Conv2d(32, 64, 5, padding=around),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2, padding=aside),
            flatten=nn.Flatten(),
            fc1=nn.Linear(64 * (height // 4) * (width // 4), self.hidden),
            relu3=nn.ReLU(),
            fc2=nn.Linear(self.hidden, shape.outputs),
        )
        return named_head(nn.Sequential(layers), "fc2")


@models.register("leaf-celeba")
@dataclass(frozen=True)
class LeafCelebA(Model):
    """LEAF's CelebA model: four 3x3 convolutions with batch norm, one linear head."""

    port: bool = False  # as FedCG's authors have it: pools padded by one, instead of rounded up
    running: bool = True  # False: norms take each batch's statistics also when judged (TensorFlow)

    def build(self, shape: Shape) -> nn.Module:
        channels, height, width = _image("leaf-celeba", shape, 8)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number in range(1, 5):
            layers[f"conv{number}"] = nn.Conv2d(channels, 32, 3, padding=1)
            layers[f"norm{number}"] = nn.BatchNorm2d(32, track_running_stats=self.running)
            layers[f"pool{number}"] = self._pool()
            layers[f"relu{number}"] = nn.ReLU()
            channels = 32
            height, width = (side // 2 + (1 if self.port else side % 2) for side in (height, width))
        layers["flatten"] = nn.Flatten()
        layers["fc"] = nn.Linear(channels * height * width, shape.outputs)
        return named_head(nn.Sequential(layers), "fc")

    def _pool(self) -> nn.Module:
        if self.port:
            return nn.MaxPool2d(2, padding=1)
        return nn.MaxPool2d(2, ceil_mode=True)  # TensorFlow's `same`


@models.register("leaf-shakespeare")
@dataclass(frozen=True)
class LeafShakespeare(Model):
    """LEAF's Shakespeare model: embedded characters, two LSTMs, one linear head."""

    embedding: int = 8  # numbers a character
    hidden: int = 256  # width of each LSTM

    def build(self, shape: Shape) -> nn.Module:
        if len(shape.sample) != 1:
            raise InputError(
                "model 'leaf-shakespeare' needs rows of character codes, got samples of shape "
                f"{shape.sample}; use it with data set 'shakespeare'"
            )
        return NextCharacter(shape.outputs, self.embedding, self.hidden)


class NextCharacter(nn.Module):
    """What comes after a row of character codes."""

    head = ("fc",)

    def __init__(self, characters: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, embedding)
        self.lstm1 = Lstm(embedding, hidden)
        self.lstm2 = Lstm(hidden, hidden)
        self.fc = nn.Linear(hidden, characters)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next character."""
        states = self.lstm2(self.lstm1(self.embed(x.long())))
        logits: Tensor = self.fc(states[:, -1])
        return logits


class Lstm(nn.Module):
    """nn.LSTM of one layer, batch first, in plain operations: `vmap` knows no rule for torch's."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.input, self.recurrent = nn.Linear(features, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """The state after every place: [batch, places, hidden]."""
        fed = self.input(x)
        state = cell = fed.new_zeros(len(fed), fed.shape[2] // 4)
        states = []
        for place in range(fed.shape[1]):
            gates = fed[:, place] + self.recurrent(state)
            let_in, keep, fresh, show = gates.chunk(4, dim=1)
            cell = F.sigmoid(keep) * cell + F.sigmoid(let_in) * F.tanh(fresh)
            state = F.sigmoid(show) * F.tanh(cell)
            states.append(state)
        return torch.stack(states, dim=1)
