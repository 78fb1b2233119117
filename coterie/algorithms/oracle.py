"""Oracle: random peers of the own true cluster. For reference only: nobody knows the clusters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.averages import average, offer, train_before
from coterie.algorithms.keeping import better, deployed, none_yet
from coterie.algorithms.picking import heard_by, nobody
from coterie.core import Algorithm, Fetch, Full, Nodes, Program, Pull, Send, algorithms
from coterie.core.draws import WORD, shuffle
from coterie.core.newcomers import hosts, mean_of


@dataclass(frozen=True)
class OracleState:
    """A model a node, and who is of its cluster."""

    params: Tensor  # [m, P]
    alike: Tensor  # [m, n] bool; not oneself
    picked: Tensor  # [m, degree] the peers heard last; -1: nobody
    best: Tensor  # [m, P], or [m, 0]: see `keep_best`
    best_loss: Tensor  # [m]


@algorithms.register("oracle", oracle=True)
@dataclass(frozen=True)
class Oracle(Algorithm):
    """Ask a few random peers of the own true cluster every round: for reference only."""

    degree: int = 4  # peers asked a round; all of a cluster that has fewer
    by_samples: bool = True  # models count by their samples; False: all alike
    train_last: bool = True  # average, then train; False: train, then average
    keep_best: bool = False  # deploy the model of the lowest validation loss; False: the last one

    def start(self, nodes: Nodes) -> OracleState:
        Pull(self.degree).check(nodes.n)
        alike = torch.zeros(len(nodes), nodes.n, dtype=torch.bool, device=nodes.device)
        params = nodes.initial_params()
        best = none_yet(params, nodes, self.keep_best)
        return OracleState(params, alike, nobody(nodes, self.degree), *best)

    def round(self, t: int, state: OracleState, nodes: Nodes) -> Program:
        alike = state.alike
        if t == 0:  # everybody tells everybody its cluster, once
            told = yield Send({"cluster": nodes.cluster}, along=nodes.graph(Full(), t))
            same = told["cluster"][told.sender] == nodes.cluster[told.receiver]
            alike = alike.index_put((told.receiver, told.source[told.sender]), same)
        params = train_before(state.params, t, nodes, self.train_last)
        inbox = yield Fetch(offer(params, nodes, self.by_samples), self.choose(t, alike, nodes))
        params = average(params, inbox, nodes, self.by_samples)
        params = nodes.train(params, t) if self.train_last else params
        best = better(state.best, state.best_loss, params, nodes)
        return OracleState(params, alike, heard_by(inbox, state.picked), *best)

    def personal(self, state: OracleState, nodes: Nodes) -> Tensor:
        return deployed(state.params, state.best)

    def adopt(self, state: OracleState, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        theirs = nodes.cluster.view(-1, nodes.n)[newcomers.replica.to(nodes.device)]  # [q, n]
        same = theirs == newcomers.cluster[:, None]
        return mean_of(deployed(state.params, state.best), hosts(nodes, newcomers, same))

    def choose(self, t: int, alike: Tensor, nodes: Nodes) -> Tensor:
        """Random peers of the own cluster [m, degree]; -1 where it has no more."""
        words = nodes.draw("peers", t, nodes.n).masked_fill(~alike, WORD)
        chosen = shuffle(words)[:, : self.degree]
        return torch.where(alike.gather(1, chosen), chosen, -1)
