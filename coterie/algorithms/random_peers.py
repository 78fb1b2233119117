"""Random peers: ask a few peers at random, average by samples, train; the baseline of DAC."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.algorithms.averages import average, offer, train_before
from coterie.core import Algorithm, GraphSpec, Nodes, Program, Pull, Send, State, algorithms


@algorithms.register("random")
@dataclass(frozen=True)
class RandomPeers(Algorithm):
    """Ask a few random peers every round and average with them: DAC without its choice."""

    degree: int = 4  # peers asked a round
    by_samples: bool = True  # models count by their samples; False: all alike
    train_last: bool = True  # average, then train; False: train, then average

    def start(self, nodes: Nodes) -> State:
        return State(nodes.initial_params())

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        params = train_before(state.params, t, nodes, self.train_last)
        inbox = yield Send(
            offer(params, nodes, self.by_samples), along=nodes.graph(self.graph_spec(), t)
        )
        params = average(params, inbox, nodes, self.by_samples)
        return State(nodes.train(params, t) if self.train_last else params)

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params

    def graph_spec(self) -> GraphSpec:
        return Pull(self.degree)
