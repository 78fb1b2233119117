"""D-PSGD (Lian et al., NeurIPS 2017): average with fixed neighbors, Metropolis-Hastings weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from coterie.algorithms.all_reduce import average_all
from coterie.core import Algorithm, GraphSpec, Nodes, Program, Send, State, algorithms, graphs, mix


@algorithms.register("dpsgd")
@dataclass(frozen=True)
class DPSGD(Algorithm):
    """D-PSGD (Lian et al., NeurIPS 2017): average with the same neighbors every round."""

    graph: str | Mapping[str, Any] = "fixed-regular"  # who is whose neighbor (coterie list graphs)
    all_reduce: bool = False  # average all models once after the last round
    sealed: bool = False  # secure aggregation: a node learns the sum of what it hears, no model

    def start(self, nodes: Nodes) -> State:
        return State(nodes.initial_params())

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        params = nodes.train(state.params, t)
        graph = nodes.graph(self.graph_spec(), t)
        inbox = yield Send(
            {"params": params},
            along=graph,
            sealed=self.sealed,
            metropolis=self.sealed,
            apart=nodes.layout.buffers,
        )
        return State(mix(params, inbox, "params", weight=inbox.metropolis))

    def finish(self, t: int, state: State, nodes: Nodes) -> Program | None:
        return average_all(t, state, nodes, self.sealed) if self.all_reduce else None

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params

    def graph_spec(self) -> GraphSpec:
        return graphs.build(self.graph)
