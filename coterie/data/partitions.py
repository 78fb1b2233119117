"""Partitions: which samples each node owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from coterie.core.registry import Registry
from coterie.data.keyed import log_gammas, normals, order, proportions, uniforms
from coterie.data.source import Split
from coterie.errors import InputError

REDRAWS = 200  # tries for a Dirichlet partition in which every node has enough samples


class Partition(Protocol):
    """A registered frozen dataclass that deals samples to nodes."""

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """For each node the indices of its samples; no sample is dealt twice."""


partitions: Registry[Partition] = Registry("partition")


@partitions.register("iid")
@dataclass(frozen=True)
class Iid:
    """Deal the samples at random: equal sizes, to one, and the same labels everywhere."""

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """A random order of the samples, cut into equal parts."""
        _enough(len(split), nodes, 1)
        return np.array_split(order(len(split), seed, "partition/iid"), nodes)


@partitions.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet:
    """Deal each class in proportions drawn from a Dirichlet distribution."""

    alpha: float = 0.5  # small: few classes a node; large: like iid
    min_samples: int = 10  # redraw until every node has as many
    balance: bool = True  # a node with its fair share gets no more; else sizes differ wildly

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """The first draw in which every node has enough samples."""
        _positive("dirichlet", "alpha", self.alpha)
        _enough(len(split), nodes, max(self.min_samples, 1))
        pools = _pools(split, seed, "dirichlet")
        for attempt in range(REDRAWS):
            parts = self._deal(pools, nodes, seed, attempt)
            if min(len(part) for part in parts) >= max(self.min_samples, 1):
                return parts
        raise InputError(
            f"partition 'dirichlet': after {REDRAWS} draws some of {nodes} nodes still have fewer "
            f"than {self.min_samples} of {len(split)} samples; use fewer nodes, a larger alpha "
            f"(got {self.alpha:g}) or a smaller min_samples"
        )

    def _deal(
        self, pools: list[np.ndarray], nodes: int, seed: int, attempt: int
    ) -> list[np.ndarray]:
        fair = sum(len(pool) for pool in pools) / nodes
        sizes = np.zeros(nodes, dtype=np.int64)
        parts: list[list[np.ndarray]] = [[] for _ in range(nodes)]
        for label, pool in enumerate(pools):
            logs = log_gammas(self.alpha, nodes, seed, "partition/dirichlet", label, attempt)
            if self.balance:
                logs[sizes >= fair] = -np.inf
            for node, part in enumerate(_cut(pool, proportions(logs))):
                parts[node].append(part)
                sizes[node] += len(part)
        return [np.concatenate(part) for part in parts]


@partitions.register("shards")
@dataclass(frozen=True)
class Shards:
    """Give each node the same small number of classes (the pathological split)."""

    classes_per_node: int = 2  # classes each node has

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """Each class is cut evenly among the nodes that have it."""
        _enough(len(split), nodes, 1)
        pools = _pools(split, seed, "shards")
        has = self._choose(nodes, len(pools), seed)
        parts: list[list[np.ndarray]] = [[] for _ in range(nodes)]
        for label, pool in enumerate(pools):
            owners = np.flatnonzero(has[:, label])
            _enough(len(pool), max(len(owners), 1), 1)
            for place, node in enumerate(owners):
                parts[node].append(pool[place :: len(owners)])
        return [np.concatenate(part) for part in parts]

    def _choose(self, nodes: int, classes: int, seed: int) -> np.ndarray:
        """Which node has which class: bool [nodes, classes], every class about as often."""
        if not 1 <= self.classes_per_node <= classes:
            raise InputError(
                f"partition 'shards': classes_per_node must be in 1..{classes}, the classes "
                f"there are; got {self.classes_per_node}"
            )
        ties = uniforms(classes, seed, "partition/shards", np.arange(nodes))
        has = np.zeros((nodes, classes), dtype=bool)
        used = np.zeros(classes)
        for node in range(nodes):
            rarest = np.argsort(used + ties[node], kind="stable")[: self.classes_per_node]
            has[node, rarest] = True
            used[rarest] += 1
        return has


@partitions.register("sorted-shards")
@dataclass(frozen=True)
class SortedShards:
    """Sort samples by label, cut them into shards, deal each node a few (McMahan et al., 2017)."""

    per_node: int = 2  # shards of each node; two may be of one class, and one of two classes

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """As many shards of one size as all nodes take, dealt at random."""
        _positive("sorted-shards", "per_node", self.per_node)
        _enough(len(split), nodes, self.per_node)
        in_order = np.concatenate(_pools(split, seed, "sorted-shards"))
        shards = np.array_split(in_order, nodes * self.per_node)
        dealt = order(len(shards), seed, "partition/sorted-shards/deal")
        return [
            np.concatenate([shards[s] for s in own]) for own in dealt.reshape(nodes, self.per_node)
        ]


@partitions.register("normal")
@dataclass(frozen=True)
class Normal:
    """Give each node labels from a normal distribution about its own point of the label circle."""

    sigma: float = 1.5  # deviation, in labels
    min_samples: int = 10  # the fewest samples a node may have

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """Every node asks for an equal share; asking for a label that has run out gets nothing."""
        _enough(len(split), nodes, max(self.min_samples, 1))
        pools = _pools(split, seed, "normal")
        wishes = self._wishes(len(split) // nodes, nodes, len(pools), seed)
        owners = np.repeat(np.arange(nodes), wishes.shape[1])
        queue = order(wishes.size, seed, "partition/normal/queue")
        wished, owners = wishes.ravel()[queue], owners[queue]
        # the first in the queue are served: [K] lists of nodes, no longer than the pools
        served = [owners[wished == k][: len(pool)] for k, pool in enumerate(pools)]
        takers = np.concatenate(served)
        taken = np.concatenate([p[: len(s)] for p, s in zip(pools, served, strict=True)])
        parts = [taken[takers == node] for node in range(nodes)]
        smallest = min(len(part) for part in parts)
        if smallest < max(self.min_samples, 1):
            raise InputError(
                f"partition 'normal': a node has only {smallest} samples, fewer than "
                f"{self.min_samples}; use fewer nodes, a larger sigma (got {self.sigma:g}) or a "
                "smaller min_samples"
            )
        return parts

    def _wishes(self, count: int, nodes: int, classes: int, seed: int) -> np.ndarray:
        """Labels that each node would have: int64 [nodes, count]."""
        _positive("normal", "sigma", self.sigma)
        ids = np.arange(nodes)
        centres = classes * uniforms(1, seed, "partition/normal/centre", ids)
        labels = centres + self.sigma * normals(count, seed, "partition/normal", ids)
        return np.round(labels).astype(np.int64) % classes


@partitions.register("natural")
@dataclass(frozen=True)
class Natural:
    """Give each node the samples of one user, where the data say who made each sample."""

    min_samples: int = 1  # users with fewer samples are left out

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """The samples of each node's user."""
        chosen = self.users(split, nodes, seed)
        assert split.users is not None
        return [np.flatnonzero(split.users == user) for user in chosen]

    def users(self, split: Split, nodes: int, seed: int) -> np.ndarray:
        """The user behind each node, in a random order of the users: int64 [nodes]."""
        if split.users is None:
            raise InputError(
                "partition 'natural' needs to know who made each sample, and this data set does "
                "not say; use another partition, or data with users"
            )
        users, counts = np.unique(split.users, return_counts=True)
        users = users[counts >= self.min_samples]
        if not 1 <= nodes <= len(users):
            raise InputError(
                f"partition 'natural' has one user a node: {len(users)} users of at least "
                f"{self.min_samples} samples, got {nodes} nodes; use fewer nodes"
            )
        return np.asarray(users[order(len(users), seed, "partition/natural")[:nodes]])


@partitions.register("quantity")
@dataclass(frozen=True)
class Quantity:
    """Deal the samples at random in sizes drawn from a Dirichlet distribution."""

    alpha: float = 0.5  # small: sizes differ wildly; large: equal sizes
    min_samples: int = 10  # the fewest samples a node has

    def split(self, split: Split, nodes: int, seed: int) -> list[np.ndarray]:
        """Every node has the smallest size and its share of the rest."""
        _positive("quantity", "alpha", self.alpha)
        least = max(self.min_samples, 1)
        _enough(len(split), nodes, least)
        shuffled = order(len(split), seed, "partition/quantity")
        first, rest = np.split(shuffled, [nodes * least])
        shares = proportions(log_gammas(self.alpha, nodes, seed, "partition/quantity/sizes"))
        return [
            np.concatenate(both)
            for both in zip(np.split(first, nodes), _cut(rest, shares), strict=True)
        ]


def _cut(pool: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """The pool in consecutive parts of these shares, which sum to one."""
    ends = np.round(np.cumsum(shares)[:-1] * len(pool)).astype(np.int64)
    return np.split(pool, ends)


def _pools(split: Split, seed: int, name: str) -> list[np.ndarray]:
    """The indices of the samples of each class that has any, in random order."""
    if split.targets.dtype != np.int64:
        raise InputError(
            f"partition {name!r} deals by class, got regression targets; use iid or quantity"
        )
    shuffled = order(len(split), seed, f"partition/{name}/pools")
    labels = split.targets[shuffled]
    return [shuffled[labels == label] for label in np.unique(labels)]


def _positive(name: str, option: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"partition {name!r}: {option} must be above 0, got {value:g}")


def _enough(samples: int, nodes: int, each: int) -> None:
    if nodes < 1:
        raise InputError(f"a partition needs at least one node, got {nodes}")
    if samples < nodes * each:
        raise InputError(
            f"clusters that need more samples than there are: {nodes} nodes x {each} samples, "
            f"got {samples}; use fewer nodes, a smaller min_samples or a larger data set"
        )
