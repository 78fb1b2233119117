"""Random peers: ask a few peers at random, average by samples, train; the baseline of DAC."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.algorithms.averages import average, offer, train_before
from coterie.algorithms.keeping import better, deployed, none_yet
from coterie.algorithms.picking import heard_by, nobody
from coterie.core import Algorithm, GraphSpec, Nodes, Program, Pull, Send, algorithms


@dataclass(frozen=True)
class RandomState:
    """A model a node, and whom it met."""

    params: Tensor  # [m, P]
    picked: Tensor  # [m, degree] the peers heard last; -1: nobody
    best: Tensor  # [m, P], or [m, 0]: see `keep_best`
    best_loss: Tensor  # [m]


@algorithms.register("random")
@dataclass(frozen=True)
class RandomPeers(Algorithm):
    """Ask a few random peers every round and average with them: DAC without its choice."""

    degree: int = 4  # peers asked a round
    by_samples: bool = True  # models count by their samples; False: all alike
    train_last: bool = True  # average, then train; False: train, then average
    keep_best: bool = False  # deploy the model of the lowest validation loss; False: the last one

    def start(self, nodes: Nodes) -> RandomState:
        params = nodes.initial_params()
        best = none_yet(params, nodes, self.keep_best)
        return RandomState(params, nobody(nodes, self.degree), *best)

    def round(self, t: int, state: RandomState, nodes: Nodes) -> Program:
        params = train_before(state.params, t, nodes, self.train_last)
        inbox = yield Send(
            offer(params, nodes, self.by_samples), along=nodes.graph(self.graph_spec(), t)
        )
        params = average(params, inbox, nodes, self.by_samples)
        params = nodes.train(params, t) if self.train_last else params
        best = better(state.best, state.best_loss, params, nodes)
        return RandomState(params, heard_by(inbox, state.picked), *best)

    def personal(self, state: RandomState, nodes: Nodes) -> Tensor:
        return deployed(state.params, state.best)

    def graph_spec(self) -> GraphSpec:
        return Pull(self.degree)
