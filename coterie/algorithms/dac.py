"""DAC (Listo Zec et al., 2022): ask peers whose models fit my data, and learn who they are.

Steps are numbered as on docs/papers/dac.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.averages import average, offer, train_before
from coterie.algorithms.keeping import better, deployed, none_yet
from coterie.algorithms.picking import heard_by, nobody
from coterie.core import Algorithm, Fetch, Inbox, Nodes, Program, Pull, algorithms, uniform
from coterie.errors import InputError


@dataclass(frozen=True)
class DACState:
    """A model a node, and what it knows of its peers."""

    params: Tensor  # [m, P]
    scores: Tensor  # [m, n] similarity to every peer, measured or estimated; 0: unknown
    asked: Tensor  # [m, n] bool: whose model was measured
    picked: Tensor  # [m, degree] the peers heard last; -1: nobody
    best: Tensor  # [m, P], or [m, 0]: see `keep_best`
    best_loss: Tensor  # [m]


@algorithms.register("dac")
@algorithms.register(
    "dac-thesis",
    doc="DAC as in the FACADE thesis's code: no two-hop, plain mean, the same draw every round",
    two_hop=False,
    samples=80,
    by_samples=False,
    train_last=False,
    redraw=False,
)
@dataclass(frozen=True)
class DAC(Algorithm):
    """DAC (Listo Zec et al., 2022): ask those peers more often whose models fit the own data."""

    degree: int = 4  # peers asked a round
    tau: float = 30.0  # how strongly similar peers are preferred
    growing: bool = True  # DAC-var: the temperature grows from 1 to tau + 1; False: tau always
    two_hop: bool = True  # take the similarity of unknown peers from peers that know them
    samples: int = 0  # own train samples on which models are compared; 0: all
    by_samples: bool = True  # models count by their samples; False: all alike
    train_last: bool = True  # average, then train; False: train, then average
    redraw: bool = True  # False: the same random numbers every round, so that peers freeze
    keep_best: bool = False  # deploy the model of the lowest validation loss; False: the last one

    def __post_init__(self) -> None:
        for name in ("tau", "samples"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}")

    def start(self, nodes: Nodes) -> DACState:
        Pull(self.degree).check(nodes.n)
        params = nodes.initial_params()
        scores = params.new_zeros(len(nodes), nodes.n)
        asked = torch.zeros_like(scores, dtype=torch.bool)
        best = none_yet(params, nodes, self.keep_best)
        return DACState(params, scores, asked, nobody(nodes, self.degree), *best)

    def round(self, t: int, state: DACState, nodes: Nodes) -> Program:
        params = train_before(state.params, t, nodes, self.train_last)
        rows = offer(params, nodes, self.by_samples) | (
            {"scores": state.scores} if self.two_hop else {}
        )
        inbox = yield Fetch(rows, self.choose(t, state.scores, nodes), full=True)  # 1
        losses = nodes[inbox.hearers].loss(  # 2: my data, their models
            inbox["params"][inbox.sender], t, "scores", self.samples or None
        )
        scores, asked = self.learn(state, inbox, similarity(losses), nodes)  # 3
        params = average(params, inbox, nodes, self.by_samples)  # 4
        params = nodes.train(params, t) if self.train_last else params  # 5
        best = better(state.best, state.best_loss, params, nodes)
        return DACState(params, scores, asked, heard_by(inbox, state.picked), *best)

    def personal(self, state: DACState, nodes: Nodes) -> Tensor:
        return deployed(state.params, state.best)

    def choose(self, t: int, scores: Tensor, nodes: Nodes) -> Tensor:
        """Peers [m, degree] drawn without replacement, with probabilities softmax(tau * scores)."""
        lead = self.temperature(t - 1) * scores.double()
        lead = lead.scatter(1, nodes.ids[:, None], -torch.inf)  # nobody asks itself
        if not self.redraw:
            most = self.degree * (self.degree + 1) // 2
            return replay(lead, uniform(nodes.draw("peers", 0, most)), self.degree)
        return race(lead, uniform(nodes.draw("peers", t, nodes.n)), self.degree)

    def temperature(self, t: int) -> float:
        """Of the probabilities that round t ends with."""
        return 2 * self.tau / (1 + math.exp(-0.2 * t)) - self.tau + 1 if self.growing else self.tau

    def learn(
        self, state: DACState, inbox: Inbox, similar: Tensor, nodes: Nodes
    ) -> tuple[Tensor, Tensor]:
        """Scores and asked peers after the similarities [E] of this round's peers."""
        met = (inbox.receiver, inbox.source[inbox.sender])
        scores = state.scores.index_put(met, similar)
        asked = state.asked.index_put(met, torch.ones_like(similar, dtype=torch.bool))
        if not self.two_hop:
            return scores, asked
        hearsay = estimate(inbox["scores"][inbox.sender], similar, inbox.receiver, scores)
        told = ~asked & (hearsay > 0)
        told = told.scatter(1, nodes.ids[:, None], False)
        return torch.where(told, hearsay, scores), asked


def race(lead: Tensor, u: Tensor, degree: int) -> Tensor:
    """The first to arrive [m, degree], where peer j takes a time of -log(u_j) / exp(lead_j).

    In logarithms, so that no probability is too small to count.
    """
    late = torch.log(-torch.log(u))
    return (lead - late).argsort(dim=1, descending=True, stable=True)[:, :degree]


def replay(lead: Tensor, u: Tensor, degree: int) -> Tensor:
    """The peers [m, degree] at which numbers u fall among the cumulated probabilities, as in NumPy.

    As many numbers as are missing fall on the same probabilities; where several hit one peer, the
    next numbers look for the rest among the others.
    """
    places = torch.arange(degree, device=lead.device)
    chosen = torch.full((len(lead), degree + 1), -1, device=lead.device)  # the last: of no interest
    found = torch.zeros_like(chosen[:, :1])  # [m, 1] how many
    spent = torch.zeros_like(found)  # [m, 1] of the numbers
    for _ in range(degree):  # each time at least one is found
        reach = (lead - lead.amax(1, keepdim=True)).exp().cumsum(1)
        share = u.gather(1, (spent + places).clamp(max=u.shape[1] - 1)) * reach[:, -1:]
        hit = (reach[:, None] <= share[:, :, None]).sum(2)  # [m, degree]
        again = (hit[:, :, None] == hit[:, None]).tril(-1).any(2)
        missing = degree - found
        fresh = (places < missing) & ~again
        slot = torch.where(fresh, found + fresh.cumsum(1) - 1, degree)
        chosen = chosen.scatter(1, slot, hit)
        found, spent = found + fresh.sum(1, keepdim=True), spent + missing
        lead = lead.scatter(1, torch.where(fresh, hit, hit[:, :1]), -torch.inf)
    return chosen[:, :degree]


def similarity(losses: Tensor) -> Tensor:
    """1 / loss; 0, as unknown, where a model has diverged or there is nothing to compare on."""
    return (1 / losses.clamp(min=1e-8)).nan_to_num(nan=0.0, posinf=0.0)


def estimate(theirs: Tensor, similar: Tensor, receiver: Tensor, like: Tensor) -> Tensor:
    """For each row and each peer j the score that the most similar peer heard has for j: [m, n].

    `theirs` [E, n] are the scores of the peers heard, `similar` [E] how similar they are; 0 where
    nobody heard knows j.
    """
    where = receiver[:, None].expand_as(theirs)
    known = theirs > 0
    rank = torch.where(known, similar[:, None], -1)  # [E, n]
    best = torch.full_like(like, -1).scatter_reduce(0, where, rank, "amax")
    teller = known & (rank == best[receiver])
    return torch.zeros_like(like).scatter_reduce(0, where, theirs * teller, "amax")
