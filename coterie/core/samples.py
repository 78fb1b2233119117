"""Samples as the engine reads them: one pool on the device, and which part of it each row owns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from coterie.core.draws import WORD, draw, shuffle
from coterie.core.transfer import to_device


@dataclass(frozen=True)
class Pool:
    """All samples of a split: images as uint8, tables as floats.

    Samples may show one stored input, as it is or with its pixels elsewhere (turned images).
    """

    inputs: Tensor  # [M, ...] what is stored
    targets: Tensor  # [N] classes, or [N, K] values
    mean: tuple[float, ...]  # per channel, of values in 0..1
    std: tuple[float, ...]
    stored: Tensor | None = None  # [N] the input of each sample; None: sample i is input i
    turn: Tensor | None = None  # [N] which of `turns` each sample takes; None: no sample is turned
    turns: Tensor | None = None  # [T, H * W] the stored pixel that comes to each place

    def to(self, device: torch.device, dtype: torch.dtype) -> Pool:
        """The pool on a device; floating-point samples in the engine's precision."""
        inputs = self.inputs.to(device)
        targets = self.targets.to(device)
        return replace(
            self,
            inputs=inputs.to(dtype) if inputs.is_floating_point() else inputs,
            targets=targets.to(dtype) if targets.is_floating_point() else targets,
            stored=None if self.stored is None else self.stored.to(device),
            turn=None if self.turn is None else self.turn.to(device),
            turns=None if self.turns is None else self.turns.to(device),
        )

    def show(self, ids: Tensor) -> Tensor:
        """The inputs of these samples as they were given: [..., *sample shape]."""
        values = self.inputs[ids if self.stored is None else self.stored[ids]]
        if self.turn is None or self.turns is None:
            return values
        turned = _turn_at_once if values.is_cuda else _turn_by_kind
        return turned(values.flatten(-2), self.turn[ids], self.turns).view_as(values)

    def read(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The normalised inputs of these samples: [..., *sample shape]."""
        values = self.show(ids).to(dtype)
        if self.inputs.dtype != torch.uint8:
            return values
        scale, offset = (part.to(dtype) for part in self.affine)
        return values.mul_(scale).add_(offset)

    @cached_property
    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and offset that normalise bytes, per channel, in float64."""
        shape = (-1, *[1] * (self.inputs.ndim - 2))
        mean = torch.tensor(self.mean, dtype=torch.float64).view(shape)
        std = torch.tensor(self.std, dtype=torch.float64).view(shape)
        device = self.inputs.device
        return (1 / (255 * std)).to(device), (-mean / std).to(device)


def _turn_at_once(flat: Tensor, turn: Tensor, turns: Tensor) -> Tensor:
    """Move the pixels of samples [..., C, H * W]; nothing that a GPU would have to wait for."""
    return flat.gather(-1, turns[turn].unsqueeze(-2).expand_as(flat))


def _turn_by_kind(flat: Tensor, turn: Tensor, turns: Tensor) -> Tensor:
    """The same in place, kind by kind: on a CPU most samples need nothing done."""
    for kind in turn.unique().tolist():
        if not torch.equal(turns[kind], torch.arange(turns.shape[1])):
            some = flat[turn == kind]
            flat[turn == kind] = some.gather(-1, turns[kind].expand_as(some))
    return flat


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

    @cached_property
    def segments(self) -> list[tuple[Tensor, Tensor]]:
        """Rows that own the same samples, and those samples; rows without samples are left out."""
        keys = torch.stack([self.start, self.count], dim=1).cpu()
        places, which = torch.unique(keys, dim=0, return_inverse=True)
        rows = [torch.nonzero(which == k).flatten() for k in range(len(places))]
        return [
            (to_device(mine, self.start.device), self.index[start : start + count])
            for mine, (start, count) in zip(rows, places.tolist(), strict=True)
            if count
        ]

    def __getitem__(self, rows: Tensor) -> Samples:
        return replace(self, start=self.start[rows], count=self.count[rows])

    def take(self, rows: Tensor, host: Tensor) -> Samples:
        """These rows, of which `host` is a copy on the CPU."""
        some = self[rows]
        vars(some)["owned"] = self.owned[host]  # known already: the host need not wait for it
        return some

    def together(self, group: Tensor, groups: int) -> Samples:
        """A row for each group with all that its rows `group` [m] own; shared segments once."""
        keys = torch.stack([group.cpu(), self.start.cpu(), self.count.cpu()], dim=1)
        owners, starts, counts = torch.unique(keys, dim=0).T
        places = zip(starts.tolist(), counts.tolist(), strict=True)
        parts = [self.index[start : start + count] for start, count in places]
        total = torch.zeros(groups, dtype=torch.int64).index_add_(0, owners, counts)
        total = total.to(self.count.device)
        index = torch.cat([self.index[:0], *parts])
        return replace(self, index=index, start=total.cumsum(0) - total, count=total)

    def pick(self, positions: Tensor) -> Tensor:
        """Sample numbers of positions [m, k] within each row's segment."""
        if not len(self.index):
            return torch.zeros_like(positions)
        where = self.start[:, None] + positions  # an empty segment at the end begins past the index
        return self.index[where.clamp(max=len(self.index) - 1)]

    def all(self) -> tuple[Tensor, Tensor]:
        """Every sample of each row [m, longest], and which entries are real."""
        return self.first(int(self.owned.max()) if len(self) else 0)

    def first(self, most: int) -> tuple[Tensor, Tensor]:
        """The first samples of each row [m, most], and which entries are real."""
        positions = torch.arange(most, device=self.start.device).expand(len(self), -1)
        real = positions < self.count[:, None]
        return self.pick(torch.where(real, positions, 0)), real

    def shuffled(self, seed: Tensor, node: Tensor, t: int, stream: str, total: int) -> Tensor:
        """The first `total` samples of each row's endless run of fresh shuffles: [m, total].

        Only depends on the row's own key and count, never on the other rows of the block.
        """
        run = torch.arange(total, device=self.start.device).expand(len(self), -1)
        count = self.count.clamp(min=1)[:, None]
        number, place = run // count, run % count
        positions = torch.zeros_like(run)
        for turn, longest in enumerate(self._passes(total)):
            order = self._order(seed, node, t, f"{stream}/{turn}", longest)
            here = order.gather(1, place.clamp(max=longest - 1))
            positions = torch.where(number == turn, here, positions)
        return self.pick(torch.where(self.count[:, None] > 0, positions, 0))

    def _passes(self, total: int) -> list[int]:
        """For each pass over the data, the most samples of a row that gets that far."""
        owned = self.owned[self.owned > 0]
        if not len(owned) or not total:
            return []
        turns = -(-total // int(owned.min()))
        return [int(owned[owned * turn < total].max()) for turn in range(turns)]

    def _order(self, seed: Tensor, node: Tensor, t: int, purpose: str, longest: int) -> Tensor:
        words = draw(seed, purpose, t, node, longest)
        beyond = torch.arange(longest, device=words.device) >= self.count[:, None]
        return shuffle(words.masked_fill(beyond, WORD))
