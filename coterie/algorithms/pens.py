"""PENS (Onoszko et al., 2021): gossip with those peers whose models did best on the own data.

Steps are numbered as on docs/papers/pens.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.averages import train_before
from coterie.algorithms.keeping import better, deployed, none_yet
from coterie.algorithms.picking import heard_by, nobody
from coterie.core import Algorithm, Fetch, Inbox, Nodes, Program, Pull, algorithms, mix
from coterie.core.draws import WORD, shuffle
from coterie.errors import InputError


@dataclass(frozen=True)
class PENSState:
    """A model a node, and how often each peer's model was among the best."""

    params: Tensor  # [m, P]
    kept: Tensor  # [m, n]
    picked: Tensor  # [m, degree] the peers averaged with last; -1: nobody
    best: Tensor  # [m, P], or [m, 0]: see `keep_best`
    best_loss: Tensor  # [m]


@algorithms.register("pens")
@dataclass(frozen=True)
class PENS(Algorithm):
    """PENS (Onoszko et al., 2021): first find peers whose models fit, then gossip with them."""

    degree: int = 4  # peers asked a round
    keep: int = 2  # of those, in the first phase, the best that are averaged with
    warmup: int = 20  # rounds of the first phase
    samples: int = 0  # own train samples on which models are compared; 0: all
    keep_best: bool = False  # deploy the model of the lowest validation loss; False: the last one

    def __post_init__(self) -> None:
        for name in ("warmup", "samples"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not 0 <= self.keep <= self.degree:
            raise InputError(f"keep must be from 0 to the degree, {self.degree}; got {self.keep}")

    def start(self, nodes: Nodes) -> PENSState:
        Pull(self.degree).check(nodes.n)
        kept = torch.zeros(len(nodes), nodes.n, dtype=torch.int64, device=nodes.device)
        params = nodes.initial_params()
        best = none_yet(params, nodes, self.keep_best)
        return PENSState(params, kept, nobody(nodes, self.degree), *best)

    def round(self, t: int, state: PENSState, nodes: Nodes) -> Program:
        params = train_before(state.params, t, nodes, train_last=True)
        asked = self.choose(t, state.kept, nodes)
        inbox = yield Fetch({"params": params}, asked, full=t < self.warmup)  # 1, 4
        kept, top = state.kept, None
        if t < self.warmup:
            best = self.best(t, inbox, nodes)  # 2
            kept = kept + best
            top = best.gather(1, inbox.table(inbox.source))
        params = nodes.train(mix(params, inbox, "params", keep=top), t)  # 3
        picked = heard_by(inbox, state.picked, keep=top)
        return PENSState(params, kept, picked, *better(state.best, state.best_loss, params, nodes))

    def personal(self, state: PENSState, nodes: Nodes) -> Tensor:
        return deployed(state.params, state.best)

    def best(self, t: int, inbox: Inbox, nodes: Nodes) -> Tensor:
        """The peers heard whose models have the lowest losses on the own data: bool [m, n]."""
        losses = nodes[inbox.hearers].loss(
            inbox["params"][inbox.sender], t, "scores", self.samples or None
        )
        every = torch.full(
            (len(nodes), nodes.n), torch.inf, dtype=losses.dtype, device=nodes.device
        )
        every = every.index_put((inbox.receiver, inbox.source[inbox.sender]), losses)
        every = every.nan_to_num(nan=torch.inf, posinf=torch.inf)
        lowest = every.argsort(dim=1, stable=True)[:, : self.keep]
        return torch.zeros_like(every, dtype=torch.bool).scatter(1, lowest, True) & every.isfinite()

    def choose(self, t: int, kept: Tensor, nodes: Nodes) -> Tensor:
        """Random peers [m, degree]: of all, or after the first phase of those kept more often.

        -1 where there are no more of them.
        """
        others = torch.ones_like(kept, dtype=torch.bool).scatter(1, nodes.ids[:, None], False)
        if t >= self.warmup:
            often = kept * (nodes.n - 1) > kept.sum(1, keepdim=True)  # than by chance
            others = torch.where(often.any(1, keepdim=True), often, others)
        chosen = shuffle(nodes.draw("peers", t, nodes.n).masked_fill(~others, WORD))
        chosen = chosen[:, : self.degree]
        return torch.where(others.gather(1, chosen), chosen, -1)
