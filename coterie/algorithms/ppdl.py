"""PPDL (Listo Zec et al.): a bandit finds whom to ask, and sees only sums of models.

Steps are numbered as on docs/papers/ppdl.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from coterie.algorithms.averages import train_before
from coterie.algorithms.bandit import Bandit, choose, learn, no_trials, roomy
from coterie.algorithms.groups import Groups, check, groups_of
from coterie.algorithms.keeping import better, need_validation, none_yet
from coterie.algorithms.picking import nobody
from coterie.core import GROWS, Algorithm, Fetch, Inbox, Nodes, Program, algorithms
from coterie.core.nodes import accuracy_of
from coterie.errors import InputError


@dataclass(frozen=True)
class PPDLState:
    """Two models a node, the last and the best, and its bandit (see `Bandit`)."""

    params: Tensor  # [m, P]
    best: Tensor  # [m, P] the model with the lowest validation loss so far
    best_loss: Tensor  # [m]
    picked: Tensor  # [m, M] the peers asked last; -1: nobody
    competitive: Tensor  # [m] groups from which they were drawn
    arm: Tensor = field(metadata=GROWS)
    pulls: Tensor = field(metadata=GROWS)
    rewards: Tensor = field(metadata=GROWS)
    pseudo: Tensor = field(metadata=GROWS)
    losses: Tensor = field(metadata=GROWS)

    def bandit(self, t: int) -> Bandit:
        """What each node knows about groups, with room for round t."""
        return roomy(Bandit(self.arm, self.pulls, self.rewards, self.pseudo, self.losses), t)


@algorithms.register("ppdl")
@algorithms.register(
    "ppdl-var", doc="PPDL whose upper bounds tighten with the rounds", q=0.5, decay=0.1
)
@dataclass(frozen=True)
class PPDL(Algorithm):
    """PPDL (Listo Zec et al.): learn which groups of peers help, from sums of models alone."""

    group: int = 3  # M, peers asked together
    smallest: int = 0  # groups of this size up to `group`; 0: all have the size `group`
    q: float = 0.1  # how far groups that share one peer may differ in reward, in round 0
    q_min: float = 0.07  # what q decays to
    decay: float = 0.0  # the share of q - q_min lost every round; 0: q never changes
    by_samples: bool = True  # models count by their samples; False: all alike
    sealed: bool = False  # secure aggregation: a node learns the sum of a group, none of its models

    def __post_init__(self) -> None:
        for name in ("q", "q_min", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        if self.sealed and (self.smallest or self.group) < 2:
            raise InputError("the sum of one model is that model: sealed groups start at 2 peers")

    def start(self, nodes: Nodes) -> PPDLState:
        check(nodes.n - 1, self.smallest or self.group, self.group)
        need_validation(nodes, "PPDL")
        params = nodes.initial_params()
        bandit = no_trials(len(nodes), self.group, nodes.device)
        picked, best = nobody(nodes, self.group), none_yet(params, nodes, keep=True)
        return PPDLState(params, *best, picked, picked[:, 0] * 0, **vars(bandit))

    def round(self, t: int, state: PPDLState, nodes: Nodes) -> Program:
        groups, bandit = self.groups(nodes), state.bandit(t)
        params = train_before(state.params, t, nodes, train_last=True)
        best, best_loss = state.best, state.best_loss
        if t == 0:
            best, best_loss = better(best, best_loss, params, nodes)
        choice = choose(bandit, groups, nodes.draw("group", t, 1)[:, 0])  # 1 to 3
        asked = groups.of(choice.arm, nodes.ids)
        rows = self.offer(params, nodes)
        full = self.smallest in (0, self.group)
        inbox = yield Fetch(rows, asked, self.sealed, nodes.layout.buffers, full)  # 4
        params = mixed(params, rows, inbox)
        reward = accuracy_of(nodes.validate(params)).nan_to_num(nan=0.0)  # 5: before training
        met = inbox.count() == (asked >= 0).sum(1)  # a part of a group is another group
        bandit = learn(bandit, choice, reward, self.bound(t), met)  # 6
        params = nodes.train(params, t)  # 7
        best, best_loss = better(best, best_loss, params, nodes)
        return PPDLState(params, best, best_loss, asked, choice.competitive, **vars(bandit))

    def personal(self, state: PPDLState, nodes: Nodes) -> Tensor:
        return state.best

    def groups(self, nodes: Nodes) -> Groups:
        """The groups that a node can ask."""
        return groups_of(nodes.n - 1, self.smallest or self.group, self.group, nodes.device)

    def bound(self, t: int) -> float:
        """The q of round t; the authors renew it after its use, so rounds 0 and 1 have the same."""
        return (self.q - self.q_min) * (1 - self.decay) ** max(t - 1, 0) + self.q_min

    def offer(self, params: Tensor, nodes: Nodes) -> dict[str, Tensor]:
        """Rows that only have to be added up: models times their weights, and the weights."""
        weight = nodes.samples.to(params.dtype) if self.by_samples else params.new_ones(len(nodes))
        return {"params": params * weight[:, None], "weight": weight}


def mixed(params: Tensor, rows: dict[str, Tensor], inbox: Inbox) -> Tensor:
    """The weighted mean of the own model and those of the group, out of two sums."""
    total = rows["weight"] + inbox.sum("weight")
    mean = (rows["params"] + inbox.sum("params")) / total.clamp(min=1e-30)[:, None]
    return torch.where((inbox.count() > 0)[:, None] & (total > 0)[:, None], mean, params)
