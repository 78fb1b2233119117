"""Optimizers over any stack of rows; as in the papers, every call of `train` starts afresh."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core.registry import Registry


class Optimizer(abc.ABC):
    """A rule that changes parameters in place, given a gradient and its own memory."""

    @property
    def plain(self) -> bool:
        """Whether a step is the learning rate times the gradient, and a decay it may have."""
        return False

    @property
    def proportional(self) -> bool:
        """Whether a loss that counts twice makes steps twice as long."""
        return False

    @abc.abstractmethod
    def memory(self, params: Tensor) -> list[Tensor]:
        """Fresh memory for these parameters."""

    @abc.abstractmethod
    def step(
        self, params: Tensor, gradient: Tensor, memory: list[Tensor], number: Tensor, lr: Tensor
    ) -> None:
        """One update in place; `number` counts steps from 1; `lr` broadcasts against params."""


optimizers: Registry[Optimizer] = Registry("optimizer")


@optimizers.register("sgd")
@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent."""

    momentum: float = 0.0  # share of the last direction that is kept
    weight_decay: float = 0.0  # pull towards zero, added to the gradient

    @property
    def plain(self) -> bool:
        return not self.momentum

    @property
    def proportional(self) -> bool:
        return True

    def memory(self, params: Tensor) -> list[Tensor]:
        return [torch.zeros_like(params)] if self.momentum else []

    def step(
        self, params: Tensor, gradient: Tensor, memory: list[Tensor], number: Tensor, lr: Tensor
    ) -> None:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * params
        if self.momentum:
            gradient = memory[0].mul_(self.momentum).add_(gradient)
        params.sub_(lr * gradient)


@optimizers.register("adam")
@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), weight decay added to the gradient."""

    beta1: float = 0.9  # decay of the mean
    beta2: float = 0.999  # decay of the mean square
    eps: float = 1e-8  # keeps the division finite
    weight_decay: float = 0.0  # pull towards zero, added to the gradient

    def memory(self, params: Tensor) -> list[Tensor]:
        return [torch.zeros_like(params), torch.zeros_like(params)]

    def step(
        self, params: Tensor, gradient: Tensor, memory: list[Tensor], number: Tensor, lr: Tensor
    ) -> None:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * params
        mean, square = memory
        mean.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        root = (square / (1 - self.beta2**number)).sqrt_().add_(self.eps)
        params.sub_(lr * (mean / (1 - self.beta1**number)) / root)
