"""FACADE (EPFL master thesis, 2024): one shared core, k heads, and every node picks its head.

Line numbers are those of Algorithm 1 of the thesis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coterie.algorithms.clustered import check_count
from coterie.core import (
    Algorithm,
    Full,
    GraphSpec,
    Inbox,
    Nodes,
    Program,
    Send,
    algorithms,
    mix,
    pick_lowest,
    regular,
    uniform,
)
from coterie.core.draws import below
from coterie.core.newcomers import hosts, mean_of
from coterie.errors import InputError


@dataclass(frozen=True)
class FacadeState:
    """One core and k heads a node, and the head it trained last."""

    core: Tensor  # [m, C]
    heads: Tensor  # [m, k, H]
    choice: Tensor  # [m]


@algorithms.register("facade")
@algorithms.register(
    "idca",
    doc="IDCA, the first version of FACADE: k whole models, no shared core",
    shared_core=False,
)
@dataclass(frozen=True)
class Facade(Algorithm):
    """FACADE (EPFL thesis, 2024): a core shared by all, heads shared by those who chose them."""

    heads: int = 2  # k, the number of heads; best the number of clusters one expects
    degree: int = 4  # neighbors a round
    warmup: int = 10  # first rounds, in which the whole model is shared and all heads are equal
    scoring: Literal["same", "independent"] = "same"  # samples for all heads, or for each its own
    samples: int = 80  # own train samples on which heads are compared
    rescore_every: int = 0  # rounds; the choice after every so many sees 10 times samples; 0: never
    explore: int = 0  # rounds after the warm-up in which every node takes a random head
    fading: bool = False  # explore with probability exp(-3 t / explore) instead, t since warm-up
    leak: float = 0.0  # model leaking: how sharply losses decide what other heads lend; 0: off
    shared_core: bool = True  # False: heads are whole models (IDCA)
    all_reduce: bool = False  # average cores, and heads by index, once after the last round

    def __post_init__(self) -> None:
        least = {"heads": 1, "samples": 1} | dict.fromkeys(
            ("degree", "warmup", "rescore_every", "explore", "leak"), 0
        )
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"{name} must be at least {bound}, got {getattr(self, name)}")

    @property
    def first_choice(self) -> int:
        late = self.warmup + (0 if self.fading else self.explore)
        return late if self.heads > 1 else 0

    def start(self, nodes: Nodes) -> FacadeState:
        check_count("heads", self.heads, nodes)
        models = torch.stack(
            [nodes.initial_params(f"init {0 if self.warmup else j}") for j in range(self.heads)], 1
        )  # [m, k, P]
        core, heads = self.split(models, nodes)
        return FacadeState(core[:, 0], heads, torch.zeros_like(nodes.ids))

    def round(self, t: int, state: FacadeState, nodes: Nodes) -> Program:
        losses = self.score(t, state, nodes)
        choice = self.choose(t, losses, nodes)  # line 3
        model = torch.cat([state.core, self.lend(t, state.heads, choice, losses)], dim=1)
        core, head = self.split(nodes.train(model, t), nodes)  # line 4
        heads = put(state.heads, choice, head)  # the other heads keep their value
        inbox = yield Send(  # lines 5-7
            {"core": core, "head": head, "choice": choice},
            along=nodes.graph(self.graph_spec(), t),
        )
        if t < self.warmup:
            heads = mix(head, inbox, "head")[:, None].expand_as(heads)
        else:
            heads = self.mix_heads(heads, inbox)  # lines 9-11
        return FacadeState(mix(core, inbox, "core"), heads, choice)  # line 8

    def finish(self, t: int, state: FacadeState, nodes: Nodes) -> Program | None:
        return self.reduce(t, state, nodes) if self.all_reduce else None

    def personal(self, state: FacadeState, nodes: Nodes) -> Tensor:
        return self.join(state, self.best(state, nodes))

    def adopt(self, state: FacadeState, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        asked = hosts(nodes, newcomers)
        core, heads = mean_of(state.core, asked), mean_of(state.heads, asked)
        mine = FacadeState(core, heads, torch.zeros_like(newcomers.ids))
        return self.personal(mine, newcomers)  # the head that fits the newcomer's data

    def graph_spec(self) -> GraphSpec:
        return regular(self.degree)

    def score(self, t: int, state: FacadeState, nodes: Nodes) -> Tensor:
        """The loss of every head on a sample of the node's train data: [m, k]."""
        samples = self.seen(t)
        if self.scoring == "same":
            return nodes.head_losses(state.core, state.heads, t, "heads", samples)
        apart = [
            nodes.loss(self.join(state, j), t, f"head {j}", samples) for j in range(self.heads)
        ]
        return torch.stack(apart, dim=1)

    def seen(self, t: int) -> int:
        """The samples on which heads are compared in round t: more after a thorough look."""
        due = bool(self.rescore_every) and t > 0 and (t - 1) % self.rescore_every == 0
        return 10 * self.samples if due else self.samples

    def choose(self, t: int, losses: Tensor, nodes: Nodes) -> Tensor:
        """The head each node trains in round t: the one with the lowest loss; ties at random."""
        choice = pick_lowest(losses, nodes.draw("head ties", t, self.heads))
        chance = self.exploration(t)
        if not chance:
            return choice
        dice = nodes.draw("explore", t, 2)
        return torch.where(uniform(dice[:, 0]) < chance, below(dice[:, 1], self.heads), choice)

    def exploration(self, t: int) -> float:
        """The probability with which a node takes any head in round t."""
        since = t - self.warmup
        if since < 0 or not self.explore:
            return 0.0
        return math.exp(-3 * since / self.explore) if self.fading else float(since < self.explore)

    def lend(self, t: int, heads: Tensor, choice: Tensor, losses: Tensor) -> Tensor:
        """The chosen heads [m, H]; with model leaking the others lend, more the less losses differ.

        head_j <- w head_j + (1 - w) / (k - 1) * sum of the others, w = max softmax(-leak * losses).
        """
        head = take(heads, choice)
        if not self.leak or t < self.warmup or self.heads == 1:
            return head
        weight = torch.softmax(-self.leak * losses, dim=1).amax(1, keepdim=True).to(head.dtype)
        return weight * head + (1 - weight) / (self.heads - 1) * (heads.sum(1) - head)

    def best(self, state: FacadeState, nodes: Nodes) -> Tensor:
        """The head with the lowest loss on all the node's train data."""
        return pick_lowest(self.head_losses(state, nodes), nodes.draw("best head", 0, self.heads))

    def head_losses(self, state: FacadeState, nodes: Nodes) -> Tensor:
        return nodes.head_losses(state.core, state.heads, 0)

    def mix_heads(self, heads: Tensor, inbox: Inbox) -> Tensor:
        """Each head averaged with the heard heads of the same index."""
        sent = inbox["choice"][inbox.sender]  # [E]
        mixed = [mix(heads[:, j], inbox, "head", keep=sent == j) for j in range(self.heads)]
        return torch.stack(mixed, dim=1)

    def reduce(self, t: int, state: FacadeState, nodes: Nodes) -> Program:
        """The final all-reduce: the best head of every node goes to everybody."""
        choice = self.best(state, nodes)
        head = take(state.heads, choice)
        inbox = yield Send(
            {"core": state.core, "head": head, "choice": choice}, along=nodes.graph(Full(), t)
        )
        return FacadeState(
            mix(state.core, inbox, "core"), self.mix_heads(state.heads, inbox), choice
        )

    def split(self, params: Tensor, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """Core and head columns of models [..., P]."""
        at = nodes.layout.core.stop if self.shared_core else 0
        return params[..., :at], params[..., at:]

    def join(self, state: FacadeState, choice: Tensor | int) -> Tensor:
        """Whole models of the core and one head a node: [m, P]."""
        head = state.heads[:, choice] if isinstance(choice, int) else take(state.heads, choice)
        return torch.cat([state.core, head], dim=1)


def take(heads: Tensor, choice: Tensor) -> Tensor:
    """The chosen head of each node: [m, k, H], [m] -> [m, H]."""
    return heads[torch.arange(len(heads), device=heads.device), choice]


def put(heads: Tensor, choice: Tensor, head: Tensor) -> Tensor:
    """The heads with the chosen one of each node replaced."""
    heads = heads.clone()
    heads[torch.arange(len(heads), device=heads.device), choice] = head
    return heads
