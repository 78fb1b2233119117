"""From a stack of replicas to the block of its nodes: model, engine, samples on their device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from coterie import data
from coterie.config import AlgorithmTable, Config, Train
from coterie.core.algorithm import algorithms
from coterie.core.newcomers import apart
from coterie.core.nodes import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.data.holdings import Cluster, Holdings, Replica
from coterie.data.unseen import unseen
from coterie.errors import InputError, at
from coterie.models import Shape, build_model, check_samples
from coterie.training import TrainingSettings, make_engine, objectives, optimizers


@dataclass(frozen=True)
class Stack:
    """Replicas of equal size that run together, and what their nodes own."""

    n: int
    replicas: tuple[Replica, ...]
    holdings: Holdings  # of all nodes, or of those from `first` on
    first: int = 0
    unseen: Tensor | None = None  # [replicas * n] bool: nodes that do not train
    lr: Tensor | None = None  # [replicas * n] learning rates; None: that of [train]


@dataclass(frozen=True)
class Setup:
    """What all parts of a run have in common."""

    config: Config
    dataset: data.Dataset
    clusters: tuple[Cluster, ...]
    stacks: tuple[Stack, ...]
    device: torch.device
    moved: dict[tuple[int, torch.dtype], Pool] = field(default_factory=dict)  # on the device

    def parity_reason(self, replica: Replica) -> str | None:
        """Why predictions of different clusters cannot be compared, where they cannot."""
        used = [self.clusters[c] for c, nodes in enumerate(replica.counts) if nodes]
        if len(used) < 2:
            return "there is only one cluster"
        if any(shift.changes_labels for cluster in used for shift in cluster.shifts):
            return "clusters have different labels, so their predictions should differ"
        return None

    def names(self, stack: Stack, unseen: bool) -> tuple[tuple[str, ...], ...]:
        """The cluster of every node that trains, or of every other one, replica by replica."""
        cluster = stack.holdings.cluster
        kept = torch.zeros_like(cluster, dtype=torch.bool) if stack.unseen is None else stack.unseen
        mine = cluster[kept == unseen].tensor_split(len(stack.replicas))
        return tuple(tuple(self.clusters[c].name for c in rows.tolist()) for rows in mine)

    def clusters_by_size(self) -> list[str]:
        """The names of the clusters, the largest first."""
        counts = [replica.counts for stack in self.stacks for replica in stack.replicas]
        sizes = [sum(column) for column in zip(*counts, strict=True)]
        ranked = sorted(range(len(sizes)), key=lambda c: -sizes[c])
        return [self.clusters[c].name for c in ranked]


def make_nodes(setup: Setup, stack: Stack, table: AlgorithmTable) -> Nodes:
    """The block of a stack, with the engine that an algorithm's [train] asks for."""
    train = setup.config.train_of(table)
    settings = _settings(setup, train)
    model = setup.config.model_of(table)
    with at(model_place(setup.config, table)):
        build = build_model(model.spec, _shape(setup))
        check_samples(model.spec, stack.holdings.train.pool, stack.holdings.test.pool)
    engine = make_engine(
        build,
        setup.dataset.train.inputs.shape[1:],
        settings,
        model.head,
        setup.config.runtime.path,
    )
    work = LocalWork(
        batch=train.batch,
        steps=None if train.epochs else train.steps or LocalWork.steps,
        epochs=train.epochs,
        lr=train.lr,
    )
    seeds = tuple(replica.seed for replica in stack.replicas)
    held = stack.holdings
    count = len(held.cluster)
    samples = _on_device(setup, [held.train, held.valid, held.test], settings)
    rates = torch.full((count,), train.lr, dtype=torch.float64) if stack.lr is None else stack.lr
    return Nodes(
        population=Population(stack.n, seeds, engine, work, train.common_start),
        key=torch.arange(stack.first, stack.first + count),
        train_data=samples[0],
        valid_data=samples[1],
        test_data=samples[2],
        lr=rates.to(settings.dtype),
        clusters=held.cluster.to(settings.device) if algorithms[table.name].oracle else None,
    )


def model_place(config: Config, table: AlgorithmTable) -> str:
    """Where the model of an algorithm stands in the configuration."""
    return f"algorithm.{config.label(table)}.model" if table.model else "model"


def keep_unseen(stack: Stack, share: float) -> Stack:
    """The stack in which this share of every replica's nodes does not train."""
    if not share:
        return stack
    clusters = stack.holdings.cluster.numpy().reshape(len(stack.replicas), -1)
    mask = torch.zeros(clusters.shape, dtype=torch.bool)
    for row, cluster, replica in zip(mask, clusters, stack.replicas, strict=True):
        row[torch.from_numpy(unseen(cluster, replica.seed, share))] = True
    return replace(stack, unseen=mask.flatten())


def part_ways(nodes: Nodes, stack: Stack) -> tuple[Nodes, Nodes | None]:
    """The nodes that train, and those that come later, each a population of its own."""
    if stack.unseen is None:
        return nodes, None
    rows = torch.nonzero(~stack.unseen).flatten(), torch.nonzero(stack.unseen).flatten()
    return apart(nodes, rows[0]), apart(nodes, rows[1])


def _settings(setup: Setup, train: Train) -> TrainingSettings:
    objective = train.objective
    if objective == "auto":
        objective = "classification" if setup.dataset.classes else "regression"
    if objective == "classification" and not setup.dataset.classes:
        raise InputError(
            f"train.objective: data set {setup.dataset.name!r} has no classes; use 'regression'"
        )
    if objective == "regression" and setup.dataset.classes:
        raise InputError(
            f"train.objective: 'regression' predicts numbers, and data set {setup.dataset.name!r} "
            "has classes; use 'classification' or 'reconstruction'"
        )
    made = objectives.build(objective)
    if setup.config.evaluate.target and not made.classifies:
        raise InputError(
            f"evaluate.target is an accuracy, got {setup.config.evaluate.target:g}, and "
            f"{objective!r} has a mean squared error; leave it out"
        )
    return TrainingSettings(
        objective=made,
        optimizer=optimizers.build(train.optimizer),
        classes=setup.dataset.classes,
        batch=train.batch,
        device=setup.device,
        dtype=torch.float64 if train.precision == "float64" else torch.float32,
        precision=_precision(train, setup.device),
    )


def _precision(train: Train, device: torch.device) -> str:
    """How factors are rounded; by default a GPU uses TF32 and a CPU rounds nothing."""
    if train.precision == "auto":
        return "tf32" if device.type == "cuda" else "float32"
    return train.precision


def _shape(setup: Setup) -> Shape:
    targets = setup.dataset.train.targets
    outputs = setup.dataset.classes or int(targets.shape[1])
    return Shape(tuple(setup.dataset.train.inputs.shape[1:]), outputs)


def _on_device(setup: Setup, samples: list[Samples], settings: TrainingSettings) -> list[Samples]:
    """The samples on the engine's device; pools are moved once and shared by all parts."""
    for pool in {id(s.pool): s.pool for s in samples}.values():
        key = (id(pool), settings.dtype)
        if key not in setup.moved:
            setup.moved[key] = pool.to(settings.device, settings.dtype)
    return [
        replace(
            s,
            pool=setup.moved[id(s.pool), settings.dtype],
            index=s.index.to(settings.device),
            start=s.start.to(settings.device),
            count=s.count.to(settings.device),
        )
        for s in samples
    ]
