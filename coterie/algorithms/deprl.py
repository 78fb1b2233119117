"""DePRL (Xiong et al., AAAI 2024): a shared core, a head of one's own; first head, then core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from coterie.core import (
    Algorithm,
    Full,
    GraphSpec,
    Nodes,
    Program,
    Send,
    algorithms,
    graphs,
    mix,
)
from coterie.core.newcomers import hosts, mean_of
from coterie.errors import InputError


@dataclass(frozen=True)
class DePRLState:
    """The shared part of a node's model, and the part that stays with it."""

    core: Tensor  # [m, C]
    head: Tensor  # [m, H]


@algorithms.register("deprl")
@dataclass(frozen=True)
class DePRL(Algorithm):
    """DePRL (Xiong et al., AAAI 2024): cores are averaged, heads never leave their node."""

    graph: str | Mapping[str, Any] = "regular"  # who averages cores with whom
    head_steps: int = 10  # local steps of the head, the core frozen
    core_steps: int = 1  # local steps of the core, the head frozen
    head_epochs: float = 0.0  # passes over the own samples instead of head_steps, if any
    core_epochs: float = 0.0  # passes over the own samples instead of core_steps, if any
    lr_decay: float = 1.0  # the learning rate is multiplied by this every round
    all_reduce: bool = False  # average all cores once after the last round

    def __post_init__(self) -> None:
        for name in ("head_steps", "core_steps", "head_epochs", "core_epochs", "lr_decay"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}")

    def start(self, nodes: Nodes) -> DePRLState:
        return split(nodes.initial_params(), nodes)

    def round(self, t: int, state: DePRLState, nodes: Nodes) -> Program:
        slowed, layout = nodes.slowed(self.lr_decay**t), nodes.layout
        params = self.train_head(join(state), t, slowed)  # (a)
        params = slowed.train(  # (b): the new head is frozen
            params, t, "core", layout.core, *work(self.core_steps, self.core_epochs)
        )
        return (yield from average_cores(split(params, nodes), self.graph_spec(), t, nodes))  # (c)

    def train_head(self, params: Tensor, t: int, nodes: Nodes) -> Tensor:
        """The rows after the local work of their heads, the core frozen: [m, P]."""
        head = nodes.layout.head
        return nodes.train(params, t, "head", head, *work(self.head_steps, self.head_epochs))

    def finish(self, t: int, state: DePRLState, nodes: Nodes) -> Program | None:
        return average_cores(state, Full(), t, nodes) if self.all_reduce else None

    def personal(self, state: DePRLState, nodes: Nodes) -> Tensor:
        return join(state)

    def adopt(self, state: DePRLState, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        core = mean_of(state.core, hosts(nodes, newcomers))
        start = replace(split(newcomers.initial_params(), newcomers), core=core)
        return self.train_head(join(start), 0, newcomers)

    def graph_spec(self) -> GraphSpec:
        return graphs.build(self.graph)


def work(steps: int, epochs: float) -> tuple[int | None, float | None]:
    """Steps and epochs as `train` takes them: one of the two."""
    return (None, epochs) if epochs else (steps, None)


def average_cores(state: DePRLState, spec: GraphSpec, t: int, nodes: Nodes) -> Program:
    """Own cores averaged with those heard; heads stay where they are."""
    inbox = yield Send({"core": state.core}, along=nodes.graph(spec, t))
    return DePRLState(mix(state.core, inbox, "core"), state.head)


def split(params: Tensor, nodes: Nodes) -> DePRLState:
    """Core and head columns of models [m, P]."""
    return DePRLState(params[:, nodes.layout.core], params[:, nodes.layout.head])


def join(state: DePRLState) -> Tensor:
    """Whole models [m, P]."""
    return torch.cat([state.core, state.head], dim=1)
