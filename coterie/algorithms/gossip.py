"""Gossip learning (Ormándi et al., 2013): merge with a random peer, then train.

Line names are those of Algorithm 1 of Hegedűs et al. (JPDC 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from coterie.algorithms.averages import shares
from coterie.core import (
    Algorithm,
    GraphSpec,
    Nodes,
    Program,
    Pull,
    Push,
    Send,
    algorithms,
    mix,
)


@dataclass(frozen=True)
class GossipState:
    """A model a node, and its age: one more than how often it was trained."""

    params: Tensor  # [m, P]
    age: Tensor  # [m, 1]


@algorithms.register("gossip")
@dataclass(frozen=True)
class Gossip(Algorithm):
    """Gossip learning (Ormándi et al., 2013): merge with one random peer, then train."""

    variant: Literal["push", "pull"] = "push"  # send to a random peer, or ask one
    merge: Literal["age", "equal"] = "age"  # models count by how often they were trained, or alike

    def start(self, nodes: Nodes) -> GossipState:
        params = nodes.initial_params()
        return GossipState(params, params.new_ones(len(params), 1))

    def round(self, t: int, state: GossipState, nodes: Nodes) -> Program:
        inbox = yield Send(  # selectPeer, send
            {"params": state.params, "age": state.age}, along=nodes.graph(self.graph_spec(), t)
        )
        weight = shares(state.age, inbox, "age") if self.merge == "age" else None
        params = mix(state.params, inbox, "params", weight=weight)  # merge
        heard = inbox["age"][inbox.sender, 0]
        age = state.age[:, 0].scatter_reduce(0, inbox.receiver, heard, "amax")[:, None]
        trained = (nodes.samples > 0)[:, None]
        return GossipState(nodes.train(params, t), age + trained)  # update

    def personal(self, state: GossipState, nodes: Nodes) -> Tensor:
        return state.params

    def graph_spec(self) -> GraphSpec:
        return Push(1) if self.variant == "push" else Pull(1)
