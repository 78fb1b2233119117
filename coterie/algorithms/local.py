"""Local training: every node alone, the floor that any collaboration has to beat."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.algorithms.keeping import better, deployed, none_yet
from coterie.core import Algorithm, Nodes, Program, algorithms


@dataclass(frozen=True)
class LocalState:
    """A model a node."""

    params: Tensor  # [m, P]
    best: Tensor  # [m, P], or [m, 0]: see `keep_best`
    best_loss: Tensor  # [m]


@algorithms.register("local")
@dataclass(frozen=True)
class Local(Algorithm):
    """No exchange: every node trains alone."""

    keep_best: bool = False  # deploy the model of the lowest validation loss; False: the last one

    def start(self, nodes: Nodes) -> LocalState:
        params = nodes.initial_params()
        return LocalState(params, *none_yet(params, nodes, self.keep_best))

    def round(self, t: int, state: LocalState, nodes: Nodes) -> Program:
        params = nodes.train(state.params, t)
        return LocalState(params, *better(state.best, state.best_loss, params, nodes))
        yield  # a round is a generator, also when it sends nothing

    def personal(self, state: LocalState, nodes: Nodes) -> Tensor:
        return deployed(state.params, state.best)

    def adopt(self, state: LocalState, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        return None  # nobody gives anything to anybody
