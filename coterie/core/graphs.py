"""Who sends to whom: graphs that every node can compute for itself from (seed, t).

The graph of one population is an array of directed edges [2, E] (source id, target id), no
self-loops. `nodes.graph(spec, t)` makes the disjoint union over the replicas of a block.
"""

from __future__ import annotations

import abc
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coterie.core.draws import below, draw, draw_on_host, shuffle, uniform
from coterie.core.registry import Registry
from coterie.errors import InputError

Edges = npt.NDArray[np.int64]  # [2, E]: source, target
SERVER = -1  # the id of the server in a federated algorithm
TURNS = 8  # of pairing leftover stubs before a regular graph is drawn afresh


class GraphSpec(abc.ABC):
    """A rule that gives the edges of round t for a population of n nodes."""

    @abc.abstractmethod
    def edges(self, n: int, seed: int, t: int) -> Edges:
        """The directed edges [2, E] of round t."""

    def check(self, n: int) -> None:  # noqa: B027  (most graphs fit any n)
        """Raise InputError where n nodes cannot have this graph."""

    def changes(self) -> bool:
        """Whether the graph differs from round to round."""
        return False


graphs: Registry[GraphSpec] = Registry("graph")


def _both_ways(pairs: Edges) -> Edges:
    return np.concatenate([pairs, pairs[::-1]], axis=1)


def undirected(pairs: Edges, n: int) -> Edges:
    """Undirected pairs without loops and repeats, as edges both ways."""
    low, high = pairs.min(axis=0), pairs.max(axis=0)
    keys = np.unique(low[low < high] * n + high[low < high])
    return _both_ways(np.stack([keys // n, keys % n]))


def connected(edges: Edges, n: int) -> bool:
    """Whether every node can be reached from node 0."""
    neighbors: list[list[int]] = [[] for _ in range(n)]
    for source, target in edges.T.tolist():
        neighbors[source].append(target)
    seen, queue = {0}, deque([0])
    while queue:
        for node in neighbors[queue.popleft()]:
            if node not in seen:
                seen.add(node)
                queue.append(node)
    return len(seen) == n


@graphs.register("ring")
@dataclass(frozen=True)
class Ring(GraphSpec):
    """Each node with the one before and the one after it."""

    def edges(self, n: int, seed: int, t: int) -> Edges:
        here = np.arange(n, dtype=np.int64)
        return undirected(np.stack([here, (here + 1) % n]), n)


@graphs.register("torus")
@dataclass(frozen=True)
class Torus(GraphSpec):
    """A grid whose borders meet; as square as the number of nodes allows."""

    def edges(self, n: int, seed: int, t: int) -> Edges:
        rows = max(r for r in range(1, int(n**0.5) + 1) if n % r == 0)
        here = np.arange(n, dtype=np.int64)
        row, column = here // (n // rows), here % (n // rows)
        right = row * (n // rows) + (column + 1) % (n // rows)
        down = (row + 1) % rows * (n // rows) + column
        return undirected(np.stack([np.tile(here, 2), np.concatenate([right, down])]), n)


@graphs.register("star")
@dataclass(frozen=True)
class Star(GraphSpec):
    """Node 0 with every other node."""

    def edges(self, n: int, seed: int, t: int) -> Edges:
        others = np.arange(1, n, dtype=np.int64)
        return _both_ways(np.stack([np.zeros_like(others), others]))


@graphs.register("full")
@dataclass(frozen=True)
class Full(GraphSpec):
    """Every node with every other node."""

    def edges(self, n: int, seed: int, t: int) -> Edges:
        source, target = np.divmod(np.arange(n * n, dtype=np.int64), max(n, 1))
        return np.stack([source, target])[:, source != target]


@graphs.register("regular")
@graphs.register(
    "fixed-regular", doc="One random regular graph for all rounds, connected", fixed=True
)
@dataclass(frozen=True)
class Regular(GraphSpec):
    """A random graph in which every node has the same number of neighbors."""

    degree: int = 4  # neighbors of every node
    fixed: bool = False  # one graph for all rounds (connected), instead of a new one every round

    def check(self, n: int) -> None:
        if self.degree < 0 or self.degree >= n:
            raise InputError(
                f"degree {self.degree} is impossible among {n} nodes; use 0 to {n - 1}"
            )
        if n * self.degree % 2:
            raise InputError(
                f"{n} nodes cannot all have degree {self.degree}: nodes x degree must be even; "
                f"use degree {self.degree - 1} or {self.degree + 1}"
            )

    def changes(self) -> bool:
        return not self.fixed

    def edges(self, n: int, seed: int, t: int) -> Edges:
        self.check(n)
        if not self.fixed:
            return _random_regular(n, self.degree, seed, t, "graph")
        for attempt in range(1000):
            edges = _random_regular(n, self.degree, seed, attempt, "fixed graph")
            if connected(edges, n):
                return edges
        raise InputError(
            f"no connected graph of degree {self.degree} on {n} nodes was found in 1000 draws; "
            f"use a larger degree, or graph = 'ring'"
        )


def regular(degree: int, fixed: bool = False) -> Regular:
    """A random graph of this degree, new every round unless fixed."""
    return Regular(degree, fixed)


def _random_regular(n: int, degree: int, seed: int, t: int, purpose: str) -> Edges:
    """Pair stubs at random, keep valid pairs, pair the rest again (Steger and Wormald, 1999)."""
    if degree > (n - 1) // 2:  # sparse complements are easy to draw, dense graphs are not
        return _complement(_random_regular(n, n - 1 - degree, seed, t, purpose), n)
    for attempt in range(10_000):
        pairs = _pair_stubs(n, degree, seed, t, f"{purpose} {attempt}")
        if pairs is not None:
            return undirected(pairs, n)
    raise AssertionError(f"no {degree}-regular graph on {n} nodes")  # practically impossible


def _pair_stubs(n: int, degree: int, seed: int, t: int, purpose: str) -> Edges | None:
    """One attempt: a few turns of pairing what is left; None where some stubs cannot be paired."""
    stubs = np.repeat(np.arange(n, dtype=np.int64), degree)
    taken = np.arange(n, dtype=np.int64) * (n + 1)  # loops count as taken
    for words in draw_on_host(seed, purpose, t, TURNS, stubs.size):
        pairs = stubs[np.argsort(words[: stubs.size], kind="stable")].reshape(-1, 2)
        keys = pairs.min(axis=1) * n + pairs.max(axis=1)
        valid = _fresh(keys, taken, n)
        taken = np.concatenate([taken, keys[valid]])
        stubs = pairs[~valid].reshape(-1)
        if not stubs.size:
            return np.stack([taken[n:] // n, taken[n:] % n])
    return None


def _fresh(keys: npt.NDArray[np.int64], taken: npt.NDArray[np.int64], n: int) -> npt.NDArray[Any]:
    """Which keys are new and the first of their kind."""
    if n > 512:  # beyond that a table of all pairs costs more than sorting
        first = np.zeros(len(keys), dtype=bool)
        first[np.unique(keys, return_index=True)[1]] = True
        return first & ~np.isin(keys, taken)
    place = np.full(n * n, -1)
    place[keys[::-1]] = np.arange(len(keys))[::-1]  # the first one is written last
    place[taken] = -1
    fresh: npt.NDArray[Any] = place[keys] == np.arange(len(keys))
    return fresh


def _complement(edges: Edges, n: int) -> Edges:
    absent = ~np.eye(n, dtype=bool)
    absent[edges[0], edges[1]] = False
    return np.stack(np.nonzero(absent)).astype(np.int64)


@graphs.register("erdos-renyi")
@dataclass(frozen=True)
class ErdosRenyi(GraphSpec):
    """Every pair of nodes with the same probability."""

    probability: float = 0.2  # of each pair
    fixed: bool = True  # one graph for all rounds, instead of a new one every round

    def check(self, n: int) -> None:
        if not 0 <= self.probability <= 1:
            raise InputError(f"graph probability must be within 0 and 1, got {self.probability}")

    def changes(self) -> bool:
        return not self.fixed

    def edges(self, n: int, seed: int, t: int) -> Edges:
        source, target = np.triu_indices(n, 1)
        words = draw(seed, "erdos-renyi", 0 if self.fixed else t, 0, len(source))
        kept = (uniform(words) < self.probability).numpy()
        return _both_ways(np.stack([source, target]).astype(np.int64)[:, kept])


@graphs.register("small-world")
@dataclass(frozen=True)
class SmallWorld(GraphSpec):
    """A ring of near neighbors in which some edges lead far away (Watts and Strogatz, 1998)."""

    degree: int = 4  # near neighbors, half on each side
    rewire: float = 0.1  # probability that an edge leads to a random node instead

    def check(self, n: int) -> None:
        if self.degree < 2 or self.degree % 2 or self.degree >= n:
            raise InputError(
                f"a small world of {n} nodes needs an even degree from 2 to {n - 1}, "
                f"got {self.degree}"
            )
        if not 0 <= self.rewire <= 1:
            raise InputError(f"graph rewire must be within 0 and 1, got {self.rewire}")

    def edges(self, n: int, seed: int, t: int) -> Edges:
        self.check(n)
        here = np.tile(np.arange(n, dtype=np.int64), self.degree // 2)
        step = np.repeat(np.arange(1, self.degree // 2 + 1, dtype=np.int64), n)
        words = draw(seed, "small-world", 0, torch.arange(2), len(here))
        far = below(words[1], n - 1).numpy()
        far = far + (far >= here)  # never oneself
        rewired = (uniform(words[0]) < self.rewire).numpy()
        return undirected(np.stack([here, np.where(rewired, far, (here + step) % n)]), n)


@graphs.register("push")
@dataclass(frozen=True)
class Push(GraphSpec):
    """Each node sends to a few peers of its own choice, new ones every round (EL-Local)."""

    peers: int = 4  # peers each node sends to

    def check(self, n: int) -> None:
        if not 0 <= self.peers < n:
            raise InputError(f"{n} nodes cannot push to {self.peers} peers; use 0 to {n - 1}")

    def changes(self) -> bool:
        return True

    def edges(self, n: int, seed: int, t: int) -> Edges:
        self.check(n)
        return np.stack(_own_choice(n, self.peers, seed, t, "push"))


@graphs.register("pull")
@dataclass(frozen=True)
class Pull(GraphSpec):
    """Each node hears a few peers of its own choice, new ones every round."""

    peers: int = 4  # peers each node hears

    def check(self, n: int) -> None:
        if not 0 <= self.peers < n:
            raise InputError(f"{n} nodes cannot ask {self.peers} peers; use 0 to {n - 1}")

    def changes(self) -> bool:
        return True

    def edges(self, n: int, seed: int, t: int) -> Edges:
        self.check(n)
        return np.stack(_own_choice(n, self.peers, seed, t, "pull")[::-1])


def _own_choice(n: int, peers: int, seed: int, t: int, purpose: str) -> list[Edges]:
    """Every node beside each of the distinct peers it chose: two arrays [n * peers]."""
    here = torch.arange(n)
    chosen = shuffle(draw(seed, purpose, t, here, n - 1))[:, :peers]  # [n, peers]
    chosen = chosen + (chosen >= here[:, None])  # never oneself
    return [here.repeat_interleave(peers).numpy(), chosen.flatten().numpy()]


@dataclass(frozen=True)
class Graph:
    """The edges of one round over all replicas; a node's key is replica * n + id.

    The server of replica r among R has the key r - R, which is below all others.
    """

    source: Tensor  # [E] keys, sorted by (target, source)
    target: Tensor  # [E] keys
    n: int  # nodes of one population

    def metropolis(self) -> Tensor:
        """Metropolis-Hastings weights [E]: 1 / (1 + the larger degree of the two ends)."""
        if not self.source.numel():
            return torch.empty(0, dtype=torch.float64)
        first = torch.minimum(self.source, self.target).min()  # a server's key is negative
        source, target = self.source - first, self.target - first
        degree = torch.bincount(source, minlength=int(torch.maximum(source, target).max()) + 1)
        return 1.0 / (1 + torch.maximum(degree[source], degree[target])).double()


def union(edges: list[Edges], n: int) -> Graph:
    """The disjoint union of one edge array per replica, as a Graph."""
    replicas = len(edges)
    keys = [np.where(e == SERVER, r - replicas, e + r * n) for r, e in enumerate(edges)]
    source, target = torch.from_numpy(np.concatenate([np.empty((2, 0), np.int64), *keys], axis=1))
    order = torch.argsort(target * (replicas * (n + 1) + 1) + source)
    return Graph(source[order], target[order], n)
