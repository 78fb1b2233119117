"""Who owns which samples: clusters are shifted, nodes get disjoint parts, some are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.draws import draw
from coterie.core.samples import Pool, Samples
from coterie.data.keyed import order
from coterie.data.partitions import Natural, Partition
from coterie.data.shifts import Shift
from coterie.data.source import Dataset, Split
from coterie.data.views import View, make_pool, make_views
from coterie.errors import InputError


@dataclass(frozen=True)
class Cluster:
    """Nodes whose data follow one distribution."""

    name: str
    shifts: tuple[Shift, ...] = ()


@dataclass(frozen=True)
class Replica:
    """One population: a seed, and how many nodes each cluster has."""

    scenario: str
    seed: int
    counts: tuple[int, ...]
    label: str = ""  # what it is called, where replicas of several labels are stacked


@dataclass(frozen=True)
class Holdings:
    """The samples of every node of every replica, and its true cluster."""

    train: Samples
    valid: Samples
    test: Samples
    cluster: Tensor  # [replicas * n]


@dataclass(frozen=True)
class Plan:
    """How data are dealt to nodes."""

    partition: Partition
    holdout: float = 0.0  # share of each node's samples kept for validation
    test_samples: int = 0  # test samples of a cluster; 0: all
    own_test: float = 0.0  # share of each node's samples on which it is tested; 0: test samples


def deal(
    dataset: Dataset, clusters: Sequence[Cluster], replicas: Sequence[Replica], plan: Plan
) -> Holdings:
    """Deal a data set to all nodes of all replicas."""
    shifts = [cluster.shifts for cluster in clusters]
    train, test = (
        make_views(part, shifts, s) for s, part in enumerate((dataset.train, dataset.test))
    )
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    members = []
    for replica in replicas:
        cluster = _members(replica)
        owned = _owned(dataset, train, replica, cluster, plan)
        for node, rows in enumerate(owned):
            for part, mine in zip(parts, _apart(rows, replica.seed, node, plan), strict=True):
                part.append(mine)
        if not plan.own_test:
            parts[2][-len(owned) :] = _tests(dataset, (train, test), cluster, owned, plan)
        members.append(cluster)
    pools = [make_pool(dataset, views) for views in (train, test)]
    return Holdings(
        train=_samples(pools[0], parts[0]),
        valid=_samples(pools[0], parts[1]),
        test=_samples(pools[0 if plan.own_test else 1], parts[2]),
        cluster=torch.from_numpy(np.concatenate(members)),
    )


def own(dataset: Dataset, node: int, cluster: int, seed: int, plan: Plan) -> Holdings:
    """What a node has that brings its own data set: all of it, less what is held out."""
    rows = np.arange(len(dataset.train))
    kept, held, tested = _apart(rows, seed, node, plan)
    train, test = (
        make_pool(dataset, make_views(part, [()], s))
        for s, part in enumerate((dataset.train, dataset.test))
    )
    return Holdings(
        train=_samples(train, [kept]),
        valid=_samples(train, [held]),
        test=_samples(train, [tested])
        if plan.own_test
        else _samples(test, [_some(len(dataset.test), plan.test_samples)]),
        cluster=torch.tensor([cluster]),
    )


def _members(replica: Replica) -> np.ndarray:
    """The cluster of every node id, in a random order of the seed."""
    ranked = np.repeat(np.arange(len(replica.counts)), replica.counts)
    members: np.ndarray = ranked[order(len(ranked), replica.seed, "clusters")]
    return members


def _owned(
    dataset: Dataset, views: list[View], replica: Replica, cluster: np.ndarray, plan: Plan
) -> list[np.ndarray]:
    """The rows of the train pool that each node owns."""
    owned: list[np.ndarray] = [np.empty(0, np.int64)] * len(cluster)
    share = _shares(len(dataset.train), views, replica)
    for number, view in enumerate(views):
        nodes = np.flatnonzero(cluster == number)
        if not len(nodes):
            continue
        rows = np.flatnonzero(share[view.origin] == number)
        seed = _derived(replica.seed, f"partition {number}")
        for node, part in zip(nodes, _parts(view, rows, len(nodes), seed, plan), strict=True):
            owned[node] = view.start + rows[part]
    return owned


def _parts(view: View, rows: np.ndarray, nodes: int, seed: int, plan: Plan) -> list[np.ndarray]:
    if len(rows) < nodes:
        raise InputError(
            f"a cluster of {nodes} nodes needs at least {nodes} samples and gets {len(rows)}; "
            "use fewer nodes or more data"
        )
    users = None if view.split.users is None else view.split.users[rows]
    return plan.partition.split(_targets_only(view.split.targets[rows], users), nodes, seed)


def _targets_only(targets: np.ndarray, users: np.ndarray | None) -> Split:
    """A split for partitions, which look at targets and users and never at inputs."""
    return Split(np.empty((len(targets), 0), np.float32), targets, users)


def _shares(samples: int, views: list[View], replica: Replica) -> np.ndarray:
    """The cluster that gets each sample, in proportion to nodes among clusters that can use it."""
    usable = np.zeros((len(views), samples), bool)
    for number, view in enumerate(views):
        usable[number, view.origin] = True
    usable &= (np.array(replica.counts) > 0)[:, None]
    share = np.full(samples, -1)
    shuffled = order(samples, replica.seed, "shares")
    patterns, which = np.unique(usable, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        rows = shuffled[which[shuffled] == number]
        weight = np.array(replica.counts) * patterns[:, number]
        if weight.sum():
            edges = np.cumsum(weight) * len(rows) // weight.sum()
            share[rows] = np.searchsorted(edges, np.arange(len(rows)), side="right")
    return share


def _apart(rows: np.ndarray, seed: int, node: int, plan: Plan) -> list[np.ndarray]:
    """The samples that a node trains, validates and, where these are its own, is tested on."""
    if not plan.holdout and not plan.own_test:  # of thousands of nodes: nothing to draw
        return [rows, rows[:0], rows[:0]]
    shuffled = order(len(rows), seed, "holdout", node)
    held = int(plan.holdout * len(rows))
    tested = held + int(plan.own_test * len(rows))
    return [
        rows[np.sort(part)] for part in (shuffled[tested:], *np.split(shuffled[:tested], [held]))
    ]


def _tests(
    dataset: Dataset,
    views: tuple[list[View], list[View]],
    cluster: np.ndarray,
    owned: list[np.ndarray],
    plan: Plan,
) -> list[np.ndarray]:
    """The rows of the test pool of each node: its cluster's, or its own users'."""
    train, test = views
    if dataset.per_user_test and isinstance(plan.partition, Natural):
        return [
            _user_test(train[number], test[number], rows)
            for number, rows in zip(cluster, owned, strict=True)
        ]
    picked = [view.start + _some(len(view.split), plan.test_samples) for view in test]
    return [picked[number] for number in cluster]


def _some(count: int, wanted: int) -> np.ndarray:
    if not wanted or wanted >= count:
        return np.arange(count)
    return np.sort(order(count, 0, "test samples")[:wanted])


def _user_test(train: View, test: View, rows: np.ndarray) -> np.ndarray:
    """The test rows of the users who made these train rows."""
    assert train.split.users is not None and test.split.users is not None
    users = np.unique(train.split.users[rows - train.start])
    return test.start + np.flatnonzero(np.isin(test.split.users, users))


def _derived(seed: int, purpose: str) -> int:
    """Another seed, for one purpose."""
    high, low = draw(seed, purpose, 0, 0, 2).tolist()
    return int(high << 30 ^ low)


def _samples(pool: Pool, parts: list[np.ndarray]) -> Samples:
    """Segments of a pool; parts that are one array are stored once."""
    distinct = {id(part): part for part in parts}
    starts, total = {}, 0
    for name, part in distinct.items():
        starts[name] = total
        total += len(part)
    return Samples(
        pool,
        index=torch.from_numpy(np.concatenate(list(distinct.values()), dtype=np.int64)),
        start=torch.tensor([starts[id(part)] for part in parts], dtype=torch.int64),
        count=torch.tensor([len(part) for part in parts], dtype=torch.int64),
    )
