"""MultiConfederated Learning: many models at once, and every learner decides which to follow.

Algorithms 1 and 2 are those of the paper; docs/papers/mcfl.md says how it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from coterie.algorithms.confederation import (
    FAULTS,
    Child,
    Family,
    Updates,
    as_ids,
    as_rows,
    checked_updates,
    choices,
    everyone,
    families,
    masks,
    rebuilt,
    siblings,
)
from coterie.algorithms.mcfl_rules import Pairs, goodness, in_line, rank, rules
from coterie.core import Algorithm, Full, GraphSpec, Nodes, Program, Send, algorithms, replica_field
from coterie.core.lineage import ID, ROOT, Lineage
from coterie.errors import InputError

AT_ONCE = 1 << 28  # values of models that are judged together


@dataclass(frozen=True)
class MCFLState:
    """The models alive, equal for all learners of a replica; there are none before round 0."""

    choice: Tensor  # [m] the lowest id among those who follow the same model; -1: none yet
    scores: Tensor  # [m, M] how each learner likes each model; padding comes last
    models: Tensor = replica_field()  # [R, M, P]
    ids: Tensor = replica_field()  # [R, M, ID] uint8, ascending
    count: Tensor = replica_field()  # [R] models alive; the rest is padding
    popularity: Tensor = replica_field()  # [R, M] float64
    parents: Tensor = replica_field()  # [R, M, ID] uint8
    merged: Tensor = replica_field()  # [R, M, n] bool: whose updates are in it
    followers: Tensor = replica_field()  # [R, M, n] bool: who published it
    trained: Tensor = replica_field()  # [R, n] models that each learner trained
    faults: Tensor = replica_field()  # [R, n] uint8: what was wrong with what each sent


@dataclass(frozen=True)
class Picked:
    """Which learners train which models, the best ones first."""

    who: Tensor  # [r] rows of the block, ascending
    model: Tensor  # [r] place in all models of all replicas; -1: there are none yet
    first: Tensor  # [r] bool: the best of its learner


@algorithms.register("mcfl")
@dataclass(frozen=True)
class MCFL(Algorithm):
    """MultiConfederated Learning: train the best models alive, choose whose updates to merge."""

    tolerance: float | list[float] = 2.0  # deviations an update may be off; a list: in turns
    accept: list[str] = field(default_factory=lambda: ["divergence"])  # rules; all have to agree
    metric: Literal["auto", "accuracy", "loss"] = "auto"  # auto: accuracy where there are classes
    popularity: Literal["lineage", "size", "votes"] = "lineage"  # of a model: see the paper's page
    publish: Literal["best", "each"] = "best"  # a choice for the best trained model, or for each
    most: int = 0  # models that a learner trains a round at most; 0: the root of their number

    def __post_init__(self) -> None:
        if not self.tolerances or min(self.tolerances) < 0:
            raise InputError(f"tolerance must be at least 0, got {self.tolerance}")
        if self.most < 0:
            raise InputError(f"most must be at least 0, got {self.most}")
        for name in self.accept:
            rules.build(name)

    @property
    def tolerances(self) -> list[float]:
        """One for each learner, in turns."""
        return self.tolerance if isinstance(self.tolerance, list) else [self.tolerance]

    def start(self, nodes: Nodes) -> MCFLState:
        replicas, n = len(nodes.population.seeds), nodes.n
        most = n * (1 if self.publish == "best" else min(self.most or n, n))
        zeros = torch.zeros(replicas, most, device=nodes.device)
        return MCFLState(
            choice=torch.full_like(nodes.ids, -1),
            scores=zeros.new_full((len(nodes), most), -torch.inf, dtype=torch.float64),
            models=nodes.no_params.new_zeros(replicas, most, nodes.layout.size),
            ids=zeros.new_zeros(replicas, most, ID, dtype=torch.uint8),
            count=zeros.new_zeros(replicas, dtype=torch.int64),
            popularity=zeros.double(),
            parents=zeros.new_zeros(replicas, most, ID, dtype=torch.uint8),
            merged=zeros.new_zeros(replicas, most, n, dtype=torch.bool),
            followers=zeros.new_zeros(replicas, most, n, dtype=torch.bool),
            trained=zeros.new_zeros(replicas, n, dtype=torch.int64),
            faults=zeros.new_zeros(replicas, n, dtype=torch.uint8),
        )

    def round(self, t: int, state: MCFLState, nodes: Nodes) -> Program:
        everybody = nodes.graph(Full(), t)
        picked = self.select(state.count, state.scores, nodes)  # Algorithm 1
        learners = nodes[picked.who]
        update = learners.train(self.weights(state, picked.model, learners), t)
        parent = torch.where(picked.model[:, None] < 0, 0, _at(state.ids, picked.model))
        rows = {"params": update, "parent": parent, "samples": learners.samples}
        inbox = yield Send(rows, everybody, sender=picked.who)
        faults = torch.zeros(state.trained.numel(), dtype=torch.uint8)
        shared = len(nodes) < len(faults)  # some learners are elsewhere, with copies of their own
        every, key = everyone(rows, picked.who, inbox, nodes)
        updates = checked_updates(t, nodes.n, every, key, faults, shared)

        mine = torch.nonzero(picked.first | (self.publish == "each")).flatten()
        who = picked.who[mine]
        rows = self.choose(state, updates, who, picked.model[mine], nodes)  # Algorithm 2
        inbox = yield Send(rows, everybody, sender=who)
        allowed = state.ids.shape[1] // nodes.n
        found = families(updates, *everyone(rows, who, inbox, nodes), allowed, faults)
        own = rows["child"][picked.first[mine]]
        after = self.next(state, updates, found, faults, _labels(found, own, nodes))
        return replace(after, scores=self.scores(after, nodes))

    def personal(self, state: MCFLState, nodes: Nodes) -> Tensor:
        picked = self.select(state.count, state.scores, nodes)
        return self.weights(state, picked.model[picked.first], nodes)

    def adopt(self, state: MCFLState, nodes: Nodes, newcomers: Nodes) -> Tensor:
        """Newcomers try all models that are alive: the mean of two branches is none of them.

        Nothing of theirs was trained on, so who holds out nothing judges by its train samples.
        """
        scores = self.scores(state, newcomers)
        bare = torch.nonzero(newcomers.valid_data.count == 0).flatten()
        if len(bare):
            some = newcomers[bare]
            scores[bare] = self.scores(state, replace(some, valid_data=some.train_data))
        return self.personal(replace(state, scores=scores), newcomers)

    def graph_spec(self) -> GraphSpec:
        return Full()

    def lineage(self, state: MCFLState) -> Lineage:
        return Lineage(
            state.count,
            state.ids,
            state.parents,
            state.merged,
            state.followers,
            state.popularity,
            state.trained,
        )

    def concerns(self, state: MCFLState) -> list[str]:
        bad = torch.nonzero(state.faults)
        return [f"node {node} {FAULTS[state.faults[r, node]]}" for r, node in bad.tolist()]

    def select(self, count: Tensor, scores: Tensor, nodes: Nodes) -> Picked:
        """The best floor(sqrt(n)) of the n models [R] of each replica, by scores; ties by id."""
        alive = count.cpu()[nodes.replica]  # [m]
        wanted = alive.double().sqrt().long().clamp(min=1)
        if self.most:
            wanted = wanted.clamp(max=self.most)
        taken = torch.arange(int(wanted.max()) if len(nodes) else 0) < wanted[:, None]  # [m, k]
        who, place = (part.to(nodes.device) for part in torch.nonzero(taken).T)
        order = scores.argsort(dim=1, descending=True, stable=True)
        model = nodes.replica.to(nodes.device)[who] * scores.shape[1] + order[who, place]
        model = torch.where(alive.to(nodes.device)[who] > 0, model, -1)
        return Picked(who, model, place == 0)

    def scores(self, state: MCFLState, nodes: Nodes) -> Tensor:
        """How every learner likes every model: metric x sqrt(popularity) [m, M]."""
        size = state.ids.shape[1]
        alive = torch.arange(size) < state.count.cpu()[nodes.replica][:, None]
        who, place = torch.nonzero(alive).T
        model = nodes.replica[who] * size + place
        some = max(AT_ONCE // max(nodes.layout.size, 1), 1)
        parts = zip(who.split(some), model.split(some), strict=True)
        found = [self.judge(nodes[w], _at(state.models, m.to(nodes.device))) for w, m in parts]
        scores = torch.full((len(nodes), size), -torch.inf, dtype=torch.float64)
        popularity = state.popularity.cpu().flatten()[model]
        scores[who, place] = rank(torch.cat(found).cpu(), popularity)
        return scores.to(nodes.device)

    def judge(self, nodes: Nodes, models: Tensor) -> Tensor:
        """The metric of models on held-out data [r]; who has none takes all for equally good."""
        scores = nodes.validate(models)
        if self.metric == "loss" or scores.confusion is None:
            metric = goodness(scores.loss)
        else:
            right = scores.confusion.diagonal(dim1=1, dim2=2).sum(1)
            metric = right.double() / scores.confusion.sum((1, 2))
        return torch.where(nodes.valid_data.count > 0, metric.nan_to_num(0.0, 0.0), 1.0)

    def weights(self, state: MCFLState, model: Tensor, nodes: Nodes) -> Tensor:
        """The models at these places [r, P]; those who have none yet begin afresh."""
        if bool((model >= 0).all()):
            return _at(state.models, model)
        return torch.where(model[:, None] < 0, nodes.initial_params(), _at(state.models, model))

    def choose(
        self, state: MCFLState, updates: Updates, who: Tensor, model: Tensor, nodes: Nodes
    ) -> dict[str, Tensor]:
        """Whose updates of a model each choice [c] merges: the own one, and those in line."""
        keys, names = nodes.key[who.cpu()].tolist(), as_ids(_at(state.ids, model))
        parents = [name if m >= 0 else ROOT for name, m in zip(names, model.tolist(), strict=True)]
        mine = [updates.place[pair] for pair in zip(keys, parents, strict=True)]
        row, other = siblings(updates, mine).to(nodes.device)
        own = torch.tensor(mine, dtype=torch.int64, device=nodes.device)
        models = state.models.flatten(0, 1)
        pairs = Pairs(nodes[who[row]], updates.params, own[row], other, models, model[row])
        kept = self.accepted(pairs, row, nodes.ids[who]).to(nodes.device)
        made = choices(updates, mine, row[kept].tolist(), other[kept].tolist())
        return {name: rows.to(nodes.device) for name, rows in made.items()}

    def accepted(self, pairs: Pairs, row: Tensor, learner: Tensor) -> Tensor:
        """Which pairs [E] all rules find in line; `row` [E] is the choice, of a learner [c]."""
        allowed = torch.tensor(self.tolerances, dtype=torch.float64)
        tolerance = allowed[learner.cpu() % len(allowed)]
        kept = torch.ones(len(pairs), dtype=torch.bool)
        for name in self.accept:
            kept &= in_line(rules.build(name).measure(pairs), row, tolerance)
        return kept

    def next(
        self,
        state: MCFLState,
        updates: Updates,
        found: list[Family],
        faults: Tensor,
        choice: Tensor,
    ) -> MCFLState:
        """The state in which the published models are alive, and no others; not judged yet."""
        sizes = [range(len(family)) for family in found]
        where = [r * state.ids.shape[1] + place for r, size in enumerate(sizes) for place in size]
        at = torch.tensor(where, dtype=torch.int64, device=state.ids.device)
        names = [name for family in found for name in family]
        children = [child for family in found for child in family.values()]
        trained = torch.bincount(torch.tensor(updates.key), minlength=len(faults))
        return MCFLState(
            choice=choice.to(state.choice),
            scores=state.scores,
            models=_put(state.models, at, rebuilt(updates, children)),
            ids=_put(state.ids, at, as_rows(names)),
            count=torch.tensor([len(family) for family in found]).to(state.count),
            popularity=_put(state.popularity, at, self.popularities(state, found)),
            parents=_put(state.parents, at, as_rows([child.parent for child in children])),
            merged=_put(
                state.merged, at, masks([updates.nodes(c.updates) for c in children], updates.n)
            ),
            followers=_put(state.followers, at, masks([c.followers for c in children], updates.n)),
            trained=trained.view_as(state.trained).to(state.trained),
            faults=faults.view_as(state.faults).to(state.faults),
        )

    def popularities(self, state: MCFLState, found: list[Family]) -> Tensor:
        """How popular each child is [C]; nothing is known of ancestors that were missed."""
        values = []
        for replica, family in enumerate(found):
            alive = int(state.count[replica])
            votes = state.popularity[replica, :alive].tolist()
            known = dict(zip(as_ids(state.ids[replica, :alive]), votes, strict=True))
            parents = [(child, known.get(child.parent, 0.0)) for child in family.values()]
            values += [self.popular(child, before) for child, before in parents]
        return torch.tensor(values, dtype=torch.float64)

    def popular(self, child: Child, before: float) -> float:
        """The popularity of a child whose parent's was `before`; never 0."""
        if self.popularity == "votes":
            return float(len(child.followers))
        return len(child.updates) + (before if self.popularity == "lineage" else 0.0)


def _at(rows: Tensor, place: Tensor) -> Tensor:
    """Rows [R, M, ...] at places in replica * M + model: [r, ...]; -1 gives just any."""
    return rows.flatten(0, 1)[place.clamp(min=0)]


def _put(like: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Zeros in the shape of `like` [R, M, ...] but for `values` at places."""
    whole = torch.zeros_like(like)
    whole.flatten(0, 1)[at] = values.to(like)
    return whole


def _labels(found: list[Family], own: Tensor, nodes: Nodes) -> Tensor:
    """For each learner the lowest id among those who follow what it follows: [m]."""
    pairs = zip(nodes.replica.tolist(), as_ids(own), strict=True)
    return torch.tensor([min(found[r][name].followers) for r, name in pairs], dtype=torch.int64)
