"""Decentralised FedAvg: everybody averages everybody, as MultiConfederated Learning's baseline."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.algorithms.averages import average, offer
from coterie.core import Algorithm, Full, GraphSpec, Nodes, Program, Send, State, algorithms


@algorithms.register("fedavg-p2p")
@dataclass(frozen=True)
class FedAvgP2P(Algorithm):
    """FedAvg without a server: train, then average all models by their samples."""

    by_samples: bool = True  # models count by their samples; False: all alike

    def start(self, nodes: Nodes) -> State:
        return State(nodes.initial_params())

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        params = nodes.train(state.params, t)
        inbox = yield Send(offer(params, nodes, self.by_samples), nodes.graph(Full(), t))
        return State(average(params, inbox, nodes, self.by_samples))

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params

    def graph_spec(self) -> GraphSpec:
        return Full()
