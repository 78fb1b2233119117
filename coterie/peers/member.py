"""One node of a real run: its data, its model and the name that the run has for everybody."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from coterie import data
from coterie.block import Setup, Stack
from coterie.config import Config
from coterie.core.algorithm import algorithms
from coterie.core.federated import Federated, server_of
from coterie.core.nodes import Nodes
from coterie.data.holdings import Cluster, Plan, Replica, own
from coterie.data.partitions import Iid
from coterie.data.source import Dataset, Split, check
from coterie.errors import InputError, at
from coterie.links.wire import Limits
from coterie.part import Part
from coterie.peers.choose import SERVER, nodes_of
from coterie.run import check_names, find_device, make_parts, prepare
from coterie.runtimes.weight import frame_limits


@dataclass(frozen=True)
class Member:
    """One node of a run, ready to take part; its part's block has this node alone."""

    id: int
    config: Config
    setup: Setup
    part: Part
    cluster: str  # its true cluster, for metrics; empty: the server
    run: bytes  # 16 bytes that are the same for all members
    limits: Limits  # of a frame of the run

    @property
    def nodes(self) -> Nodes:
        """The block of this node."""
        return self.part.nodes

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all members of the run."""
        server = [SERVER] if isinstance(self.part.algorithm, Federated) else []
        return (*server, *range(self.part.nodes.n))


SEALED = (
    "sums are sealed: peers learn the sum of what they hear, never one model (secure aggregation)"
)


def is_federated(config: Config) -> bool:
    """Whether the algorithm has a server."""
    return issubclass(_class_of(config), Federated)


def is_sealed(config: Config) -> bool:
    """Whether peers learn sums alone, as a resolved configuration says."""
    return config.algorithm[0].options.get("sealed") is True


def _class_of(config: Config) -> Any:
    name = config.algorithm[0].name
    with at(f"algorithm.{config.label(config.algorithm[0])}"):
        return algorithms[name].build


def make_member(config: Config, me: int, device: str = "auto") -> Member:
    """Load the samples of one node and build its model; everything that could fail does it here."""
    check_names(config)
    setup = _own_setup(config, me, device) if config.data.own else prepare(config, device)
    (part,) = make_parts(setup)
    run, part, cluster = run_id(config, part.nodes), *_alone(part, me, config.data.own)
    limits = frame_limits(part.algorithm, part.nodes, config.runtime.largest)
    return Member(me, config, setup, part, cluster, run, limits)


def _alone(part: Part, me: int, own: bool) -> tuple[Part, str]:
    """The part with one member's block, and the cluster of that member."""
    if me == SERVER:
        return replace(part, nodes=server_of(part.nodes), clusters=((),)), ""
    row = 0 if own else me
    cluster = part.clusters[0][row]
    return replace(part, nodes=part.nodes[torch.tensor([row])], clusters=((cluster,),)), cluster


def run_id(config: Config, nodes: Nodes) -> bytes:
    """16 bytes in which all members agree, and only they: hashed from what must be the same."""
    table = config.algorithm[0]
    same = {
        "name": config.experiment.name,
        "seed": config.experiment.seeds[0],
        "nodes": nodes_of(config),
        "algorithm": table.model_dump(exclude={"label", "train", "model"}),
        "train": config.train_of(table).model_dump(),
        "columns": [[c.name, list(c.shape)] for c in nodes.layout.columns],
        "split": nodes.layout.split,
        "threshold": config.runtime.threshold,
        "data": None if config.data.own else config.data.model_dump(),
    }
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).digest()[:16]


def _own_setup(config: Config, me: int, device: str) -> Setup:
    """The block of one node that brings its own samples."""
    counts = tuple(table.nodes for table in config.data.clusters)
    names = [table.name for table in config.data.clusters]
    (scenario,) = config.data.scenarios()
    seed = config.experiment.seeds[0]
    with at("data.source"):
        dataset = _described(config) if me == SERVER else _own_data(config, me)
    where = {peer.id: names.index(peer.cluster) for peer in config.peers if peer.id != SERVER}
    plan = Plan(Iid(), config.data.holdout, config.evaluate.samples, config.data.test)
    holdings = own(dataset, max(me, 0), where.get(me, 0), seed, plan)
    stack = Stack(sum(counts), (Replica(scenario, seed, counts),), holdings, first=max(me, 0))
    clusters = tuple(Cluster(name) for name in names)
    return Setup(config, dataset, clusters, (stack,), find_device(device))


def _own_data(config: Config, me: int) -> Dataset:
    """This node's own samples; `{node}` in a path or option stands for its id."""
    spec = config.data.source
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    filled = {key: _filled(value, me) for key, value in options.items()}
    dataset = data.load(filled)
    if not config.data.classes:
        return dataset
    return check(replace(dataset, classes=config.data.classes))


def _filled(value: Any, me: int) -> Any:
    return value.replace("{node}", str(me)) if isinstance(value, str) else value


def _described(config: Config) -> Dataset:
    """A data set of the shape that the configuration tells, for a server without samples."""
    shape = config.data.shape
    if len(shape) not in (1, 3):
        raise InputError(
            "a server has no samples, so data.shape must tell theirs: [channels, height, width] "
            f"or [columns]; got {shape}"
        )
    kind = np.uint8 if len(shape) == 3 else np.float32
    classes = config.data.classes
    targets = np.zeros(1, np.int64) if classes else np.zeros((1, 1), np.float32)
    split = Split(np.zeros((1, *shape), kind), targets)
    return Dataset("none", split, split, classes, (0.0,), (1.0,))
