"""Epidemic Learning (De Vos et al., NeurIPS 2023): average with random peers, new each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from coterie.algorithms.all_reduce import average_all
from coterie.core import (
    Algorithm,
    GraphSpec,
    Nodes,
    Program,
    Push,
    Send,
    State,
    algorithms,
    mix,
    regular,
)


@algorithms.register("epidemic")
@dataclass(frozen=True)
class EpidemicLearning(Algorithm):
    """Epidemic Learning (De Vos et al., 2023): average with random peers, new ones every round."""

    degree: int = 4  # neighbors a round
    variant: Literal["oracle", "local"] = "oracle"  # a regular graph, or everybody picks its peers
    all_reduce: bool = False  # average all models once after the last round
    sealed: bool = False  # secure aggregation: a node learns the sum of what it hears, no model

    def start(self, nodes: Nodes) -> State:
        return State(nodes.initial_params())

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        params = nodes.train(state.params, t)
        graph = nodes.graph(self.graph_spec(), t)
        apart = nodes.layout.buffers
        inbox = yield Send({"params": params}, along=graph, sealed=self.sealed, apart=apart)
        return State(mix(params, inbox, "params"))

    def finish(self, t: int, state: State, nodes: Nodes) -> Program | None:
        return average_all(t, state, nodes, self.sealed) if self.all_reduce else None

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params

    def graph_spec(self) -> GraphSpec:
        return Push(self.degree) if self.variant == "local" else regular(self.degree)
