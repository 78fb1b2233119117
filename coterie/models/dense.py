"""Models of linear layers, for tables and small images."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from coterie.models.registry import Model, Shape, models, named_head


@models.register("logistic")
@dataclass(frozen=True)
class Logistic(Model):
    """One linear layer, which is the head."""

    def build(self, shape: Shape) -> nn.Module:
        layer = nn.Linear(math.prod(shape.sample), shape.outputs)
        module = nn.Sequential()
        module.add_module("flatten", nn.Flatten())
        module.add_module("fc", layer)
        return named_head(module, "fc")


@models.register("mlp")
@dataclass(frozen=True)
class MLP(Model):
    """Linear layers with ReLU; the last one is the head."""

    hidden: tuple[int, ...] = (200,)  # width of each hidden layer

    def build(self, shape: Shape) -> nn.Module:
        module = nn.Sequential()
        module.add_module("flatten", nn.Flatten())
        width = math.prod(shape.sample)
        for number, size in enumerate(self.hidden, 1):
            module.add_module(f"fc{number}", nn.Linear(width, size))
            module.add_module(f"relu{number}", nn.ReLU())
            width = size
        module.add_module("last", nn.Linear(width, shape.outputs))
        return named_head(module, "last")
