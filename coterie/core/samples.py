"""Samples as the engine reads them: one pool on the device, and which part of it each row owns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from coterie.core.draws import WORD, draw, shuffle


@dataclass(frozen=True)
class Pool:
    """All samples of a split, stored once: images as uint8, tables as floats."""

    inputs: Tensor  # [N, ...]
    targets: Tensor  # [N] classes, or [N, K] values
    mean: tuple[float, ...]  # per channel, of values in 0..1
    std: tuple[float, ...]

    def to(self, device: torch.device, dtype: torch.dtype) -> Pool:
        """The pool on a device; floating-point samples in the engine's precision."""
        inputs = self.inputs.to(device)
        targets = self.targets.to(device)
        return replace(
            self,
            inputs=inputs.to(dtype) if inputs.is_floating_point() else inputs,
            targets=targets.to(dtype) if targets.is_floating_point() else targets,
        )

    def read(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The normalised inputs of these samples: [..., *sample shape]."""
        values = self.inputs[ids].to(dtype)
        if self.inputs.dtype != torch.uint8:
            return values
        scale, offset = self._affine(values)
        return values.mul_(scale).add_(offset)

    def _affine(self, like: Tensor) -> tuple[Tensor, Tensor]:
        shape = (-1, *[1] * (self.inputs.ndim - 2))
        mean = like.new_tensor(self.mean).view(shape)
        std = like.new_tensor(self.std).view(shape)
        return 1 / (255 * std), -mean / std


@dataclass(frozen=True)
class Samples:
    """Which samples of a pool each row owns; rows may share a segment (a cluster's test set)."""

    pool: Pool
    index: Tensor  # [total] sample numbers, segment by segment
    start: Tensor  # [m] where a row's segment begins
    count: Tensor  # [m] how long it is

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def owned(self) -> Tensor:
        """The counts on the host: [m]."""
        return self.count.cpu()

    def __getitem__(self, rows: Tensor) -> Samples:
        return replace(self, start=self.start[rows], count=self.count[rows])

    def pick(self, positions: Tensor) -> Tensor:
        """Sample numbers of positions [m, k] within each row's segment."""
        return self.index[self.start[:, None] + positions]

    def all(self) -> tuple[Tensor, Tensor]:
        """Every sample of each row [m, longest], and which entries are real."""
        longest = int(self.owned.max()) if len(self) else 0
        positions = torch.arange(longest, device=self.start.device).expand(len(self), -1)
        real = positions < self.count[:, None]
        return self.pick(torch.where(real, positions, 0)), real

    def shuffled(self, seed: Tensor, node: Tensor, t: int, stream: str, total: int) -> Tensor:
        """The first `total` samples of each row's endless run of fresh shuffles: [m, total].

        Only depends on the row's own key and count, never on the other rows of the block.
        """
        count = self.count.clamp(min=1)
        if not len(self) or not total:
            return self.index.new_zeros(len(self), total)
        owned = self.owned.clamp(min=1)
        longest, passes = int(owned.max()), -(-total // int(owned.min()))
        orders = [
            self._order(seed, node, t, f"{stream}/{number}", longest) for number in range(passes)
        ]
        run = torch.arange(total, device=self.start.device).expand(len(self), -1)
        number, place = run // count[:, None], run % count[:, None]
        positions = torch.stack(orders, dim=1).flatten(1).gather(1, number * longest + place)
        return self.pick(torch.where(self.count[:, None] > 0, positions, 0))

    def _order(self, seed: Tensor, node: Tensor, t: int, purpose: str, longest: int) -> Tensor:
        words = draw(seed, purpose, t, node, longest)
        beyond = torch.arange(longest, device=words.device) >= self.count[:, None]
        return shuffle(words.masked_fill(beyond, WORD))
