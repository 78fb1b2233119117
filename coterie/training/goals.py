"""What the kernels train for: the loss of every sample, and its gradient by the outputs."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from coterie.core.samples import Pool
from coterie.errors import InputError
from coterie.training.chain import Unknown
from coterie.training.kernels import loss
from coterie.training.kernels.samples import plane
from coterie.training.objectives import Classification, Objective, Reconstruction, Regression


class Goal(abc.ABC):
    """An objective over the outputs of a network and the samples `ids` [rows, batch] it saw."""

    @abc.abstractmethod
    def gradient(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor, dout: Tensor) -> None:
        """Write the gradient of each row's mean loss into `dout`."""

    @abc.abstractmethod
    def losses(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor) -> Tensor:
        """The loss of every sample: [rows, batch]."""


@dataclass(frozen=True)
class Classes(Goal):
    """Cross-entropy of logits against the classes of the samples."""

    def gradient(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor, dout: Tensor) -> None:
        loss.cross_entropy_gradient(outputs, pool.targets, ids, dout)

    def losses(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor) -> Tensor:
        targets = pool.targets[ids]
        losses = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(ids.shape)


@dataclass(frozen=True)
class Targets(Goal):
    """Mean squared error against the targets of the samples."""

    def gradient(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor, dout: Tensor) -> None:
        wanted, given = pool.targets[0].numel(), outputs.shape[-1]
        if wanted != given:  # the kernel would read a neighbor's targets
            raise InputError(f"the model gives {given} values a sample, but targets have {wanted}")
        loss.squared_error_gradient(outputs, pool.targets, ids, dout)

    def losses(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor) -> Tensor:
        return (outputs - pool.targets[ids].view_as(outputs)).square().mean(-1)


@dataclass(frozen=True)
class Inputs(Goal):
    """Mean squared error against the inputs themselves."""

    def gradient(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor, dout: Tensor) -> None:
        loss.reconstruction_gradient(outputs, x, dout, plane(pool)[0])

    def losses(self, outputs: Tensor, x: Tensor, pool: Pool, ids: Tensor) -> Tensor:
        channels = plane(pool)[0]
        images = x[..., :channels].flatten(2, 3)  # [rows, batch, pixels, channels]
        if outputs.ndim == 3:  # of a linear layer: (channel, pixel)
            outputs = outputs.unflatten(-1, (channels, -1)).transpose(-1, -2)
        else:
            outputs = outputs[..., :channels].flatten(2, 3)
        return (outputs - images).square().mean((-1, -2))


GOALS: dict[type[Objective], Goal] = {
    Classification: Classes(),
    Regression: Targets(),
    Reconstruction: Inputs(),
}


def goal_of(objective: Objective) -> Goal:
    """The goal of an objective, where the kernels have one."""
    if type(objective) not in GOALS:
        raise Unknown(f"no kernel for the objective {type(objective).__name__}")
    return GOALS[type(objective)]
