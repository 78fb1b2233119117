"""What a model is trained for: a loss per batch and, for classes, predictions."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from coterie.core.registry import Registry


class Objective(abc.ABC):
    """A loss over outputs, and whether outputs are classes."""

    classifies: bool = False

    @abc.abstractmethod
    def losses(self, outputs: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample of a batch: [B]."""


objectives: Registry[Objective] = Registry("objective")


@objectives.register("classification")
@dataclass(frozen=True)
class Classification(Objective):
    """Cross-entropy of logits against classes."""

    classifies = True

    def losses(self, outputs: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")


@objectives.register("regression")
@dataclass(frozen=True)
class Regression(Objective):
    """Mean squared error against the targets."""

    def losses(self, outputs: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        apart = outputs - targets.view_as(outputs)
        return apart.square().reshape(len(outputs), -1).mean(1)


@objectives.register("reconstruction")
@dataclass(frozen=True)
class Reconstruction(Objective):
    """Mean squared error against the inputs themselves (autoencoders)."""

    def losses(self, outputs: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - inputs).square().flatten(1).mean(1)
