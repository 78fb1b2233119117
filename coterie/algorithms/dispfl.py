"""DisPFL (Dai et al., ICML 2022): every node trains a sparse model of its own, under its own mask.

Steps are numbered as on docs/papers/dispfl.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coterie.core import Algorithm, GraphSpec, Inbox, Layout, Nodes, Program, Pull, Send, algorithms
from coterie.core.draws import shuffle
from coterie.core.params import Column
from coterie.errors import InputError


@dataclass(frozen=True)
class DisPFLState:
    """A sparse model a node, the mask it was trained under, and the mask of the next round."""

    params: Tensor  # [m, P], 0 outside the mask
    mask: Tensor  # [m, P] bool
    grown: Tensor  # [m, P] bool


@algorithms.register("dispfl")
@dataclass(frozen=True)
class DisPFL(Algorithm):
    """DisPFL (Dai et al., ICML 2022): sparse personal models, averaged where masks overlap."""

    degree: int = 4  # peers asked a round
    density: float = 0.5  # share of the weights that a node keeps
    power: float = 1.0  # of ERK: how much denser small layers are than large ones
    drop: float = 0.5  # largest share of a layer's weights that is pruned and regrown in a round
    horizon: int = 500  # rounds over which that share falls to 0
    regrow: Literal["gradient", "random"] = "gradient"  # where weights come back
    lr_decay: float = 1.0  # the learning rate is multiplied by this every round

    def __post_init__(self) -> None:
        for name, low, high in (("density", 0, 1), ("drop", 0, 1), ("horizon", 0, math.inf)):
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} must be from {low} to {high}, got {getattr(self, name)}")
        if not math.isfinite(self.power):
            raise InputError(f"power must be finite, got {self.power}")

    def start(self, nodes: Nodes) -> DisPFLState:
        words = nodes.draw("masks", 0, nodes.layout.size)
        mask = torch.ones_like(words, dtype=torch.bool)
        for column, active in self.sparse_layers(nodes.layout):
            here = slice(column.start, column.stop)
            chosen = shuffle(words[:, here])[:, :active]
            mask[:, here] = torch.zeros_like(mask[:, here]).scatter(1, chosen, True)
        return DisPFLState(nodes.initial_params() * mask, mask, mask)

    def round(self, t: int, state: DisPFLState, nodes: Nodes) -> Program:
        inbox = yield Send(  # 1
            pack(state.params, state.mask, self.active(nodes.layout)),
            along=nodes.graph(self.graph_spec(), t),
        )
        params = average(state, inbox)  # 2, 3
        params = nodes.slowed(self.lr_decay**t).train(params, t, part=state.grown)  # 4
        return DisPFLState(params, state.grown, self.grow(t, params, state.grown, nodes))  # 5, 6

    def personal(self, state: DisPFLState, nodes: Nodes) -> Tensor:
        return state.params

    def graph_spec(self) -> GraphSpec:
        return Pull(self.degree)

    def grow(self, t: int, params: Tensor, mask: Tensor, nodes: Nodes) -> Tensor:
        """The next mask: in every layer the smallest weights are pruned, and as many come back."""
        share = self.drop / 2 * (1 + math.cos(math.pi * min(t / max(self.horizon, 1), 1)))
        if self.regrow == "gradient":
            promise = nodes.gradient(params, t, "regrow").abs()
        else:
            promise = nodes.draw("regrow", t, nodes.layout.size).double()
        grown = mask.clone()
        for column, active in self.sparse_layers(nodes.layout):
            here, count = slice(column.start, column.stop), math.ceil(share * active)
            size = params[:, here].abs().masked_fill(~mask[:, here], torch.inf)
            pruned = first(size, count)
            kept = mask[:, here].scatter(1, pruned, False)
            back = first(-promise[:, here].masked_fill(kept, -1), count)
            grown[:, here] = kept.scatter(1, back, True)
        return grown

    def sparse_layers(self, layout: Layout) -> list[tuple[Column, int]]:
        """The layers that have a mask, and how many weights each of them keeps."""
        layers = [column for column in layout.columns if column.trained]
        shares = densities([column.shape for column in layers], self.density, self.power)
        counts = [
            max(1, int(share * math.prod(column.shape)))
            for column, share in zip(layers, shares, strict=True)
        ]
        return [
            (column, count)
            for column, count in zip(layers, counts, strict=True)
            if count < math.prod(column.shape)
        ]

    def active(self, layout: Layout) -> int:
        """How many columns a node keeps; the same for all."""
        pruned = [math.prod(c.shape) - active for c, active in self.sparse_layers(layout)]
        return layout.size - sum(pruned)


def densities(shapes: list[tuple[int, ...]], density: float, power: float) -> list[float]:
    """Erdős-Rényi-Kernel: epsilon * (sum of dims / product of dims) ** power, at most 1.

    Epsilon is such that all layers together have the wanted density.
    """
    sizes = [math.prod(shape) for shape in shapes]
    raw = [(max(sum(shape), 1) / size) ** power for shape, size in zip(shapes, sizes, strict=True)]
    dense: set[int] = set()
    while len(dense) < len(shapes):
        sparse = [i for i in range(len(shapes)) if i not in dense]
        left = density * sum(sizes) - sum(sizes[i] for i in dense)
        epsilon = left / sum(raw[i] * sizes[i] for i in sparse)
        most = max(raw[i] for i in sparse)
        if epsilon * most <= 1:
            return [1.0 if i in dense else epsilon * raw[i] for i in range(len(shapes))]
        dense |= {i for i in sparse if raw[i] == most}
    return [1.0] * len(shapes)


def average(state: DisPFLState, inbox: Inbox) -> Tensor:
    """Sum of models over sum of masks, own ones included; 0 where nobody has a weight."""
    params, mask = unpack(inbox["values"], inbox["mask"], state.params.shape[1])
    total = state.params + inbox.sum(params)
    count = state.mask + inbox.sum(mask.to(total.dtype))
    return total / count.clamp(min=1) * state.grown


def first(keys: Tensor, count: int) -> Tensor:
    """The places of each row's lowest keys: [m, count]; ties by place."""
    return keys.argsort(dim=1, stable=True)[:, :count]


def pack(params: Tensor, mask: Tensor, active: int) -> dict[str, Tensor]:
    """What travels: the kept weights [m, active] and one bit for every column."""
    place = torch.where(mask, mask.cumsum(1) - 1, active)  # pruned ones go where nobody looks
    values = params.new_zeros(len(params), active + 1).scatter(1, place, params)[:, :active]
    padded = torch.nn.functional.pad(mask, (0, -mask.shape[1] % 8)).view(len(mask), -1, 8)
    bits = torch.arange(8, device=mask.device, dtype=torch.uint8)
    return {"values": values, "mask": (padded.byte() << bits).sum(2, dtype=torch.uint8)}


def unpack(values: Tensor, packed: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Models and masks [S, P] of what travelled."""
    bits = torch.arange(8, device=packed.device, dtype=torch.uint8)
    mask = (packed[:, :, None] >> bits & 1).flatten(1)[:, :columns].bool()
    place = (mask.cumsum(1) - 1).clamp(0, values.shape[1] - 1)
    return torch.where(mask, values.gather(1, place), 0), mask
