"""A tiny population: noisy tables in two clusters, a net with batch norm and a declared head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape
from coterie.models.fedcg import DomainNet, FedCGModel, classifier
from coterie.training import TrainingSettings, make_engine, objectives, optimizers

N = 6
FEATURES, CLASSES = 5, 3


def build_net() -> nn.Module:
    """Linear, batch norm, ReLU, and a linear head."""
    layers = [("in", nn.Linear(FEATURES, 6)), ("norm", nn.BatchNorm1d(6)), ("relu", nn.ReLU())]
    module = nn.Sequential()
    for name, layer in [*layers, ("out", nn.Linear(6, CLASSES))]:
        module.add_module(name, layer)
    module.head = ("out",)
    return module


def build_with_domains() -> nn.Module:
    """The same with two domains of samples (FedCG)."""
    options = FedCGModel(layers=("in",), domains=2)
    return DomainNet(build_net(), classifier(Shape((FEATURES,), CLASSES), 2), options)


def make_nodes(
    seeds: tuple[int, ...] = (1,),
    n: int = N,
    oracle: bool = False,
    build: Callable[[], nn.Module] = build_net,
) -> Nodes:
    """One block with all nodes of these replicas, in float64."""
    settings = TrainingSettings(
        objective=objectives.build("classification"),
        optimizer=optimizers.build("sgd"),
        classes=CLASSES,
        batch=4,
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    engine = make_engine(build, (FEATURES,), settings)
    held = _samples([(seed, node) for seed in seeds for node in range(n)])
    return Nodes(
        population=Population(n, seeds, engine, LocalWork(batch=4, steps=3, lr=0.2)),
        key=torch.arange(n * len(seeds)),
        train_data=held,
        valid_data=held,
        test_data=held,
        lr=torch.full((n * len(seeds),), 0.2, dtype=torch.float64),
        clusters=torch.arange(n * len(seeds)) % n % 2 if oracle else None,
    )


def _samples(owners: list[tuple[int, int]]) -> Samples:
    """Between 9 and 14 samples a node; odd nodes have their labels turned."""
    parts = [np.random.default_rng(owner).normal(size=(9 + owner[1] % 6, 8)) for owner in owners]
    inputs = np.concatenate([part[:, :FEATURES] for part in parts])
    turned = [
        (p[:, :CLASSES].argmax(1) + o[1] % 2) % CLASSES for p, o in zip(parts, owners, strict=True)
    ]
    count = torch.tensor([len(part) for part in parts])
    pool = Pool(torch.from_numpy(inputs), torch.from_numpy(np.concatenate(turned)), (0.0,), (1.0,))
    return Samples(pool, torch.arange(len(inputs)), count.cumsum(0) - count, count)
