"""What a block asks of the engine that trains its rows; `coterie.training` has the engines."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core.params import Layout
from coterie.core.samples import Samples


@dataclass(frozen=True)
class Work:
    """One call of `train`: what every row does to its parameters."""

    samples: Samples
    order: Tensor  # [m, steps * batch] sample numbers, on the engine's device
    steps: Tensor  # [m] updates of each row, on the CPU; rows that run out stand still
    batch: int
    lr: Tensor  # [m], on the CPU
    part: slice | None = None  # columns that may change; None: all
    mask: Tensor | None = None  # [m, P] bool: the entries of each row that may change; None: all
    correction: Tensor | None = None  # [m, P] added to every gradient (SCAFFOLD)
    proximal: float = 0.0  # strength of the pull towards `anchor` (FedProx)
    anchor: Tensor | None = None  # [m, P]; None: the parameters the call started from
    once: bool = False  # the numbers of rows and samples will hardly come again: capture nothing


@dataclass(frozen=True)
class Scores:
    """How each row did on its samples."""

    loss: Tensor  # [m] mean over the samples; NaN for a row without samples
    confusion: Tensor | None  # [m, C, C] counts: true class by predicted class; None: no classes


def rows_memory(layout: Layout, rows: int) -> int:
    """Bytes of the models themselves: before and after training, and while they are mixed."""
    return 3 * rows * layout.size * 4


class Engine(abc.ABC):
    """Trains and scores stacked rows of one model."""

    layout: Layout
    device: torch.device
    dtype: torch.dtype

    @abc.abstractmethod
    def memory(self, rows: int) -> int:
        """About how many bytes training and mixing these many rows take, data not counted."""

    def expect(self, rows: int) -> None:
        """Hear that calls with these many rows come most; an engine may prepare for them."""
        return

    def release(self) -> None:
        """Free what was kept for the next call; called when a part of a run is done."""
        return

    @abc.abstractmethod
    def initial(self, seeds: list[int]) -> Tensor:
        """A freshly initialised model for each seed: [m, P]."""

    @abc.abstractmethod
    def train(self, params: Tensor, work: Work) -> Tensor:
        """The rows after their local steps: [m, P]; the rows given are left as they are."""

    @abc.abstractmethod
    def losses(self, params: Tensor, samples: Samples, ids: Tensor, real: Tensor) -> Tensor:
        """The mean loss [m] of each row over sample numbers [m, k], where `real`."""

    @abc.abstractmethod
    def gradients(self, params: Tensor, samples: Samples, ids: Tensor) -> Tensor:
        """The gradient [m, P] of each row's mean loss over sample numbers [m, k].

        As when it is judged: batch norms use their running statistics. Buffers have gradient 0.
        """

    def head_losses(
        self, core: Tensor, heads: Tensor, samples: Samples, ids: Tensor, real: Tensor
    ) -> Tensor:
        """The mean loss [m, k] of each row's core [m, C] with each of its heads [m, k, H]."""
        models = [torch.cat([core, heads[:, j]], dim=1) for j in range(heads.shape[1])]
        return torch.stack([self.losses(m, samples, ids, real) for m in models], dim=1)

    @abc.abstractmethod
    def scores(self, params: Tensor, samples: Samples) -> Scores:
        """Loss and confusion of each row over all its samples."""
