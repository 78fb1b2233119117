"""Local training: every node alone, the floor that any collaboration has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.core import Algorithm, Nodes, Program, State, algorithms


@algorithms.register("local")
@dataclass(frozen=True)
class Local(Algorithm):
    """No exchange: every node trains alone."""

    def start(self, nodes: Nodes) -> State:
        return State(nodes.initial_params())

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        return State(nodes.train(state.params, t))
        yield  # a round is a generator, also when it sends nothing

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params

    def adopt(self, state: State, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        return None  # nobody gives anything to anybody
