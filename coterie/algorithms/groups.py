"""Groups of peers as the arms of a bandit: numbered, with what each of them contains.

A group is a set of places among the other n - 1 nodes, so that all nodes share one table.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from coterie.errors import InputError

ARMS = 1 << 24  # groups that are still listed one by one


@dataclass(frozen=True, eq=False)
class Groups:
    """All groups of `smallest` to `largest` out of `peers` peers, smaller ones first."""

    peers: int
    smallest: int
    largest: int
    members: Tensor  # [N, largest] places, ascending; -1 fills up smaller groups
    below: tuple[Tensor, ...]  # size 2, 3, ...: [C, size] number of each subset with one less
    choose: Tensor  # [peers + 1, largest + 1] binomial coefficients
    subsets: tuple[Tensor, ...]  # size 1, 2, ...: [c, size] places of a group's subsets in it

    def __len__(self) -> int:
        return len(self.members)

    def of(self, arm: Tensor, ids: Tensor) -> Tensor:
        """The ids of the peers in each node's group: arms [m], own ids [m] -> [m, largest]."""
        places = self.members[arm]
        return torch.where(places < 0, -1, places + (places >= ids[:, None]).long())

    def count(self, size: int) -> int:
        """How many groups there are of one size."""
        return math.comb(self.peers, size)

    def number(self, places: Tensor) -> Tensor:
        """The number of a group [..., size] among those of its size, in lexicographic order."""
        size = places.shape[-1]
        after = self.peers - 1 - places.clamp(min=0)
        left = size - torch.arange(size, device=places.device)
        return self.count(size) - 1 - self.choose[after, left].sum(-1)


def groups_of(peers: int, smallest: int, largest: int, device: torch.device) -> Groups:
    """The groups that a node can choose from; made once and kept."""
    check(peers, smallest, largest)
    return _groups(peers, smallest, largest, str(device))


def check(peers: int, smallest: int, largest: int) -> None:
    """Raise InputError unless there are such groups, and not too many of them."""
    if not 1 <= smallest <= largest <= peers:
        raise InputError(
            f"each of {peers + 1} nodes has {peers} peers and cannot ask groups of {smallest} to "
            f"{largest} of them; use sizes from 1 to {peers}"
        )
    arms = sum(math.comb(peers, size) for size in range(smallest, largest + 1))
    if arms > ARMS:
        raise InputError(
            f"{peers} peers form {arms:,} groups of {smallest} to {largest}, and at most {ARMS:,} "
            "can be weighed; use smaller groups or fewer nodes"
        )


@lru_cache(maxsize=8)
def _groups(peers: int, smallest: int, largest: int, device: str) -> Groups:
    choose = [[math.comb(p, s) for s in range(largest + 1)] for p in range(peers + 1)]
    sizes = range(1, largest + 1)
    sets = {size: _sets(peers, size) for size in sizes}
    found = Groups(peers, smallest, largest, torch.empty(0), (), torch.tensor(choose), ())
    kept = [_padded(sets[size], largest) for size in range(smallest, largest + 1)]
    return replace(
        found,
        members=torch.cat(kept).to(device),
        below=tuple(_below(found, sets[size]).to(device) for size in sizes[1:]),
        choose=found.choose.to(device),
        subsets=tuple(_sets(largest, size).to(device) for size in sizes),
    )


def _sets(peers: int, size: int) -> Tensor:
    """All sets of one size in lexicographic order: [C, size]."""
    flat = itertools.chain.from_iterable(itertools.combinations(range(peers), size))
    values = np.fromiter(flat, dtype=np.int64, count=size * math.comb(peers, size))
    return torch.from_numpy(values).view(-1, size)


def _below(groups: Groups, sets: Tensor) -> Tensor:
    """For each set the numbers of those that lack one of its members: [C, size]."""
    size = sets.shape[1]
    rest = [[place for place in range(size) if place != out] for out in range(size)]
    return torch.stack([groups.number(sets[:, places]) for places in rest], dim=1)


def _padded(sets: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(sets, (0, width - sets.shape[1]), value=-1)
