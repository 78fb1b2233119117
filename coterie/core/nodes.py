"""The block: nodes hosted together, their data, and the engine that trains their rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from coterie.core.drawing import Drawing
from coterie.core.draws import draw
from coterie.core.engine import Engine, Scores, Work
from coterie.core.graphs import SERVER, Graph, GraphSpec, union
from coterie.core.judging import Judge
from coterie.core.params import Layout
from coterie.core.samples import Samples
from coterie.core.transfer import to_device


@dataclass(frozen=True)
class LocalWork:
    """How much a node trains in one round, unless an algorithm asks for something else."""

    batch: int = 8  # samples of one step
    steps: int | None = 10  # local steps a round
    epochs: float | None = None  # passes over the own samples a round, instead of steps
    lr: float = 0.05  # learning rate


@dataclass(frozen=True)
class Population:
    """What all blocks of a run have in common."""

    n: int  # nodes of one population (one replica)
    seeds: tuple[int, ...]  # one per replica
    engine: Engine
    work: LocalWork
    common_start: bool = False  # all nodes of a replica start from the same model
    drawing: Drawing = field(default_factory=Drawing)

    def __post_init__(self) -> None:
        self.engine.expect(self.n * len(self.seeds))

    def graph(self, spec: GraphSpec, t: int) -> Graph:
        """The graph of round t over all replicas."""
        return self.drawing.graph(spec, t, self._draw)

    def _draw(self, spec: GraphSpec, t: int) -> Graph:
        by_seed = {seed: spec.edges(self.n, seed, t) for seed in dict.fromkeys(self.seeds)}
        return union([by_seed[seed] for seed in self.seeds], self.n)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes of a population as rows; the only place that maps over nodes."""

    population: Population
    key: Tensor  # [m] replica * n + id, on the CPU; a server's: replica - replicas
    train_data: Samples
    valid_data: Samples
    test_data: Samples
    lr: Tensor  # [m] learning rate of each row, on the CPU
    clusters: Tensor | None = None  # [m] true cluster; only where an algorithm may know it

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, rows: Tensor) -> Nodes:
        """These rows, in this order, with repeats."""
        rows = torch.nonzero(rows).flatten() if rows.dtype == torch.bool else rows
        host, rows = rows.cpu(), to_device(rows, self.train_data.start.device)
        return replace(
            self,
            key=self.key[host],
            train_data=self.train_data.take(rows, host),
            valid_data=self.valid_data.take(rows, host),
            test_data=self.test_data.take(rows, host),
            lr=self.lr[host],
            clusters=None if self.clusters is None else self.clusters[rows],
        )

    def slowed(self, factor: float) -> Nodes:
        """The same nodes, their learning rates times a factor."""
        return self if factor == 1 else replace(self, lr=self.lr * factor)

    @property
    def n(self) -> int:
        """The size of one population."""
        return self.population.n

    @property
    def layout(self) -> Layout:
        """The columns of a model."""
        return self.population.engine.layout

    @property
    def device(self) -> torch.device:
        """Where the rows live."""
        return self.population.engine.device

    @cached_property
    def ids(self) -> Tensor:
        """The id of each row's node, on the rows' device: [m]."""
        return to_device(torch.where(self.key < 0, SERVER, self.key % self.n), self.device)

    @cached_property
    def replica(self) -> Tensor:
        """The number of each row's replica, on the CPU: [m]."""
        return torch.where(self.key < 0, self.key + len(self.population.seeds), self.key // self.n)

    @cached_property
    def seed(self) -> Tensor:
        """The seed of each row's replica, on the rows' device: [m]."""
        seeds = torch.tensor(self.population.seeds, dtype=torch.int64)
        return to_device(seeds[self.replica], self.device)

    @property
    def samples(self) -> Tensor:
        """How many samples each node trains on: [m]."""
        return self.train_data.count

    @property
    def no_params(self) -> Tensor:
        """No models, in their shape: [0, P]."""
        engine = self.population.engine
        return torch.empty(0, engine.layout.size, dtype=engine.dtype, device=engine.device)

    def of_server(self, rows: Tensor) -> Tensor:
        """For each row what the server of its replica holds: [replicas, ...] -> [m, ...]."""
        if len(rows) == 1:  # a view: thousands of clients hold one model
            return rows.expand(len(self), *rows.shape[1:])
        return rows[to_device(self.replica, rows.device)]

    @property
    def cluster(self) -> Tensor:
        """The true cluster of each row, for oracles alone: [m]."""
        if self.clusters is None:
            raise PermissionError(
                "true clusters are for metrics and for algorithms registered with oracle=True"
            )
        return self.clusters

    def draw(self, purpose: str, t: int, count: int) -> Tensor:
        """Words for each row, keyed by its node: int64 [m, count] in range(2**32)."""
        return draw(self.seed, purpose, t, self.ids, count)

    def graph(self, spec: GraphSpec, t: int) -> Graph:
        """Who sends to whom in round t, over the whole population."""
        return self.population.graph(spec, t)

    def initial_params(self, stream: str = "init") -> Tensor:
        """A freshly initialised model for each row: [m, P]; another stream gives another model."""
        ids = torch.zeros_like(self.ids) if self.population.common_start else self.ids
        words = draw(self.seed, stream, 0, ids, 2).cpu()
        return self.population.engine.initial((words[:, 0] << 21 ^ words[:, 1]).tolist())

    def train(
        self,
        params: Tensor,
        t: int,
        stream: str = "train",
        part: slice | Tensor | None = None,
        steps: int | Tensor | None = None,
        epochs: float | Tensor | None = None,
        correction: Tensor | None = None,
        proximal: float = 0.0,
    ) -> Tensor:
        """The rows after this round's local steps, or `steps` or `epochs`: for all, or each [m].

        `part` says what may change: columns, or with a mask [m, P] single entries of each row.
        """
        work = self.population.work
        count = self.steps(steps, epochs)
        longest = int(count.max()) if len(self) else 0
        order = self.train_data.shuffled(self.seed, self.ids, t, stream, longest * work.batch)
        return self.population.engine.train(
            params,
            Work(
                samples=self.train_data,
                order=order,
                steps=count,
                batch=work.batch,
                lr=self.lr,
                part=part if isinstance(part, slice) else None,
                mask=part if isinstance(part, Tensor) else None,
                correction=correction,
                proximal=proximal,
            ),
        )

    def full_step(self, params: Tensor) -> Tensor:
        """The rows after one step on all their own samples at once: [m, P]."""
        after, owned = params.clone(), self.train_data.owned
        for count in owned.unique().tolist():  # batches are never padded
            rows = torch.nonzero(owned == count).flatten()
            some = self[rows]
            work = Work(
                samples=some.train_data,
                order=some.train_data.all()[0],
                steps=torch.full_like(rows, int(count > 0)),
                batch=count,
                lr=some.lr,
                once=True,
            )
            where = rows.to(params.device)
            after[where] = self.population.engine.train(params[where], work)
        return after

    def steps(
        self, steps: int | Tensor | None = None, epochs: float | Tensor | None = None
    ) -> Tensor:
        """Local steps of each row [m], on the CPU; an epoch is as many batches as samples fill."""
        work, owned = self.population.work, self.train_data.owned
        if steps is None and epochs is None:
            steps, epochs = (work.steps, None) if work.epochs is None else (None, work.epochs)
        if epochs is not None:
            passes = torch.as_tensor(epochs).cpu()
            steps_each = torch.clamp((passes * owned).long() // work.batch, min=1)
            return steps_each * (owned > 0) * (passes > 0)
        return torch.as_tensor(0 if steps is None else steps).cpu() * (owned > 0)

    def gradient(self, params: Tensor, t: int, stream: str = "gradient") -> Tensor:
        """The gradient [m, P] of each row on one batch of its train data; 0 without samples."""
        batch = self.population.work.batch
        ids = self.train_data.shuffled(self.seed, self.ids, t, stream, batch)
        found = self.population.engine.gradients(params, self.train_data, ids)
        return found * (self.samples > 0)[:, None]

    def loss(
        self, params: Tensor, t: int, stream: str = "loss", samples: int | None = None
    ) -> Tensor:
        """The mean loss of each row on its train data, or on `samples` of them drawn anew: [m]."""
        ids, real = self._some(t, stream, samples)
        return self.population.engine.losses(params, self.train_data, ids, real)

    def head_losses(
        self,
        core: Tensor,
        heads: Tensor,
        t: int,
        stream: str = "loss",
        samples: int | None = None,
    ) -> Tensor:
        """As `loss`, for a core [m, C] with each of its heads [m, k, H], same samples: [m, k]."""
        ids, real = self._some(t, stream, samples)
        return self.population.engine.head_losses(core, heads, self.train_data, ids, real)

    def _some(self, t: int, stream: str, samples: int | None) -> tuple[Tensor, Tensor]:
        """Sample numbers [m, k] of the train data, all or some drawn anew, and which count."""
        data = self.train_data
        if samples is None:
            return data.all()
        samples = min(samples, int(data.owned.max()) if len(self) else 0)  # nobody has more
        ids, real = data.first(samples)
        drawn = data.shuffled(self.seed, self.ids, t, stream, samples)
        whole = data.count <= samples  # in order, so that equal models have equal losses
        return torch.where(whole[:, None], ids, drawn), real

    def accuracy(self, params: Tensor) -> Tensor:
        """The share of its own validation data that each row gets right, in 0..1: [m]."""
        return accuracy_of(self.validate(params))

    def validate(self, params: Tensor) -> Scores:
        """Loss and confusion of each row on its own validation data; NaN where it has none."""
        return self.population.engine.scores(params, self.valid_data)

    def test(self, params: Tensor, judge: Judge | None = None) -> Scores:
        """Loss and confusion of each row on its test data: for metrics, never for an algorithm."""
        return (judge or Judge(self.population.engine)).test(params, self.test_data)


def accuracy_of(scores: Scores) -> Tensor:
    """The share of samples on the diagonal of each confusion matrix: [m]."""
    if scores.confusion is None:
        raise ValueError("there is no accuracy without classes")
    right = scores.confusion.diagonal(dim1=1, dim2=2).sum(1)
    return right.double() / scores.confusion.sum((1, 2))
