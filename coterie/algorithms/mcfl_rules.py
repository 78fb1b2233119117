"""What a learner decides for itself: how it ranks models, and whose updates it accepts.

A rule of acceptance measures how far each peer's update of a model is out of line; what lies above
median + tolerance x deviation of these numbers is left out (Algorithm 2). Another rule is another
registered class with a `measure`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core import Nodes
from coterie.core.registry import Registry

AT_ONCE = 1 << 26  # values that are compared together
SLACK = 1e-6  # of the threshold: of two peers the farther one lies exactly on it
TINY = 1e-12  # losses and norms may be 0


def rank(metric: Tensor, popularity: Tensor) -> Tensor:
    """The score of models [m, M] by how well they do and how many updates they have merged."""
    return metric * popularity.sqrt()


def goodness(loss: Tensor) -> Tensor:
    """A metric of which more is better; loss times popularity would punish the popular ones."""
    return 1 / (loss.double() + TINY)


@dataclass(frozen=True)
class Pairs:
    """Who looks at whose update of a model that both trained."""

    nodes: Nodes  # [E] those who look
    updates: Tensor  # [S, P]
    mine: Tensor  # [E] the own update of each
    theirs: Tensor  # [E] the update that is looked at
    models: Tensor  # [M, P]
    model: Tensor  # [E] what both started from

    def __len__(self) -> int:
        return len(self.mine)

    def measured(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """What `measure` gives for pairs [e], a bounded number of them at a time: [E]."""
        some = max(AT_ONCE // max(self.updates.shape[1], 1), 1)
        whole = torch.arange(len(self), device=self.mine.device)
        parts = [measure(part).double() for part in whole.split(some)]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    @property
    def trained(self) -> Tensor:
        """The columns that training changes: running statistics say nothing about intent."""
        return torch.nonzero(self.nodes.layout.trained()).flatten().to(self.updates.device)


class Rule(abc.ABC):
    """A rule of acceptance."""

    @abc.abstractmethod
    def measure(self, pairs: Pairs) -> Tensor:
        """How far each update is out of line: [E]; NaN is never accepted."""


rules: Registry[Rule] = Registry("rule of acceptance", "rules")


@rules.register("divergence")
@dataclass(frozen=True)
class Divergence(Rule):
    """How far their weights are from mine, in lengths of mine (Equation 2)."""

    def measure(self, pairs: Pairs) -> Tensor:
        """|theirs - mine| / |mine|."""
        columns = pairs.trained

        def divergence(some: Tensor) -> Tensor:
            mine = pairs.updates[pairs.mine[some]][:, columns].double()
            theirs = pairs.updates[pairs.theirs[some]][:, columns].double()
            return _length(theirs - mine) / _length(mine).clamp(min=TINY)

        return pairs.measured(divergence)


@rules.register("norm")
@dataclass(frozen=True)
class Norm(Rule):
    """How much longer or shorter than mine their step is: against scaled or empty updates."""

    def measure(self, pairs: Pairs) -> Tensor:
        """The logarithm of the ratio of the two steps, without its sign."""
        columns = pairs.trained

        def step(update: Tensor, some: Tensor) -> Tensor:
            begun = pairs.models[pairs.model[some]][:, columns].double()
            moved = pairs.updates[update[some]][:, columns].double() - begun
            return _length(moved).clamp(min=TINY).log()

        def ratio(some: Tensor) -> Tensor:
            return (step(pairs.theirs, some) - step(pairs.mine, some)).abs()

        return pairs.measured(ratio)


@rules.register("validation")
@dataclass(frozen=True)
class Validation(Rule):
    """The loss of their update on my validation data: against updates that are no good here."""

    def measure(self, pairs: Pairs) -> Tensor:
        """My loss, their model; nothing is out of line for who has nothing to validate on."""

        def loss(some: Tensor) -> Tensor:
            judges = pairs.nodes[some]
            found = judges.validate(pairs.updates[pairs.theirs[some]]).loss
            return torch.where(judges.valid_data.count > 0, found, torch.zeros_like(found))

        return pairs.measured(loss)


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return length


def in_line(values: Tensor, row: Tensor, tolerance: Tensor) -> Tensor:
    """Which measures [E] of choice `row` [E] are within that choice's tolerance [c]: bool [E].

    The deviation is the population's, peers alone are counted, and the threshold itself is within.
    """
    measures, where = values.cpu().numpy(), row.cpu().numpy()
    kept = np.zeros(len(measures), dtype=bool)
    for choice, allowed in enumerate(tolerance.tolist()):
        here = where == choice
        kept[here] = measures[here] <= _threshold(measures[here], allowed)
    return torch.from_numpy(kept)


def _threshold(measures: NDArray[np.float64], tolerance: float) -> float:
    known = measures[np.isfinite(measures)]
    if not known.size:
        return -np.inf
    return float(np.median(known) + tolerance * known.std()) * (1 + SLACK) + TINY
