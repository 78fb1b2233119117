"""FedCG's domains at the server: how they are joined, who belongs to which, how they fare."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from coterie.core import Inbox, Layout

COLLAPSED = 0.25  # of the entropy that even domains have
UNUSED = 0.05  # of the samples that a domain has where all have equally many
TINY = 1e-12  # added to distances: equal domains have none
Begin = Literal["eye", "rand", "uniform", "hamming"]


@dataclass(frozen=True)
class Places:
    """Where a model 'fedcg' keeps what the server and its clients have to find."""

    domains: int  # D; 0: a model without domains
    layers: tuple[str, ...] = ()  # with branches
    by: str = "teacher"  # who tells the domains, as in the model
    shared: tuple[slice, ...] = ()  # the columns of theta_a, which K-means compares

    @property
    def assigned(self) -> bool:
        """Whether K-means tells the domains."""
        return self.by == "clients"

    @property
    def compared(self) -> int:
        """How many columns K-means compares; 0 where there is none."""
        return sum(part.stop - part.start for part in self.shared) if self.assigned else 0


@lru_cache(maxsize=16)
def places_of(layout: Layout) -> Places:
    """The places of a layout."""
    shapes = {column.name: column.shape for column in layout.columns}
    if "adjacency" not in shapes:
        return Places(0)
    ending = ".domains"
    layers = tuple(name.removesuffix(ending) for name in shapes if name.endswith(ending))
    own = tuple(
        f"{layer}.{part}" for layer in layers for part in ("domains", "projection", "scale")
    )
    shared = tuple(
        slice(column.start, column.stop)
        for column in layout.columns
        if column.trained and column.name.startswith("base.") and not column.name.startswith(own)
    )
    taught = any(name.startswith("teacher.") for name in shapes)
    by = "clients" if "assigned" in shapes else "teacher" if taught else "attributes"
    return Places(shapes["adjacency"][0], layers, by, shared)


def adjacency(domains: Tensor, own: float) -> Tensor:
    """A_ii = beta, A_ij in proportion to 1 / |V_i - V_j|: [..., D, q] -> [..., D, D]."""
    apart = (domains[..., :, None, :] - domains[..., None, :, :]).norm(dim=-1)
    return joined(1 / (apart + TINY), own)


def joined(near: Tensor, own: float) -> Tensor:
    """A_ii = beta, A_ij in proportion to how near j is to i: [..., D, D]."""
    count = near.shape[-1]
    eye = torch.eye(count, dtype=near.dtype, device=near.device)
    if count == 1:
        return eye.expand_as(near)
    others = near * (1 - eye)
    whole: Tensor = own * eye + (1 - own) * others / others.sum(-1, keepdim=True)
    return whole


def first_adjacency(begin: Begin, words: Tensor, own: float) -> Tensor:
    """A before the first round; `words` [replicas, D * D] are drawn for one at random."""
    count = math.isqrt(words.shape[1])
    even = torch.ones(len(words), count, count, dtype=torch.float64, device=words.device)
    if begin == "eye":
        return torch.eye(count, dtype=even.dtype, device=words.device).expand_as(even)
    if begin == "rand":
        even = (words.view_as(even).double() + 1) / 2**32
    elif begin == "hamming":
        even = even / hamming(count).clamp(min=1).to(even)
    return joined(even, own)


def hamming(count: int) -> Tensor:
    """In how many binary digits two numbers differ: [D, D]; digits are attributes."""
    numbers = torch.arange(count)
    apart = numbers[:, None] ^ numbers
    return sum((apart >> digit & 1 for digit in range(count.bit_length())), torch.zeros_like(apart))


def compared(update: Tensor, places: Places) -> Tensor:
    """What K-means compares of the clients' models: how each changed what all share: [m, S]."""
    return torch.cat([update[:, part] for part in places.shared], dim=1)


def nearest(change: Tensor, centers: Tensor, domain: Tensor) -> Tensor:
    """The center next to each change [m, S], of [m, D, S]; as before where there are none: [m]."""
    found = (centers - change[:, None]).norm(dim=-1).argmin(-1)
    return torch.where(centers.flatten(1).any(1), found, domain)


def moved_centers(centers: Tensor, inbox: Inbox) -> Tensor:
    """The mean of each domain's clients; the first centers are the first clients of a round."""
    began = centers.flatten(1).any(1)  # [replicas]
    domain = inbox["domain"][inbox.sender]  # [E]
    domain = torch.where(began[inbox.receiver], domain, _rank(inbox.receiver))
    made = []
    for number, center in enumerate(centers.unbind(1)):
        mine = domain == number
        count = inbox.count(mine)[:, None]
        mean = inbox.sum("change", mine.to(centers.dtype)) / count.clamp(min=1)
        made.append(torch.where(count > 0, mean, center))
    return torch.stack(made, dim=1)


def _rank(receiver: Tensor) -> Tensor:
    """The place of each edge among those of its receiver: [E]."""
    earlier = (receiver[:, None] == receiver).tril(-1)
    return earlier.sum(1)


def entropy(counts: Tensor) -> Tensor:
    """Of the shares of the domains, in nats: [..., D] -> [...]."""
    share = counts / counts.sum(-1, keepdim=True).clamp(min=1)
    found: Tensor = torch.special.entr(share).sum(-1)
    return found


def live_share(named: dict[str, Tensor], layers: Sequence[str]) -> Tensor:
    """The share of V' = A V W above 0, which ReLU lets live, in the worst layer: [replicas, 1]."""
    found = []
    for layer in layers:
        made = named["adjacency"] @ named[f"{layer}.domains"]  # [replicas, D, q]
        for number in range(2):
            matrix = named.get(f"{layer}.projection.{number}")
            if matrix is not None:  # of a whole layer, or of each of its filters
                rows = made.flatten(1).unflatten(1, (-1, matrix.shape[1]))
                made = (rows.relu() if number else rows) @ matrix
        found.append((made > 0).flatten(1).double().mean(1))
    return torch.stack(found).amin(0)[:, None]


ADVICE = {  # by who tells the domains
    "teacher": "let the teacher follow less often (every), use fewer domains, keep centred = true",
    "clients": "the clients are too much alike for so many domains: use fewer",
    "attributes": "nearly all samples are told to be in one: see how the data tell domains",
}


def warn_of_collapse(counts: Tensor, done: int, by: str) -> None:
    """Say so where domains are hardly used, or all but one together; counts: [replicas, D].

    Attributes that are told may be rare: there only what is outside of one domain counts.
    """
    domains = counts.shape[-1]
    share = counts[counts.sum(-1) > 0].double()
    share = share / share.sum(-1, keepdim=True)
    found, used = entropy(share), (share * domains >= UNUSED).sum(-1)
    collapsed = found < COLLAPSED * math.log(domains)
    if by != "attributes":
        collapsed |= used < domains
    if domains < 2 or not bool(collapsed.any()):
        return
    worst = int(torch.where(collapsed, found, torch.inf).argmin())
    warnings.warn(
        f"FedCG: by round {done} {int(used[worst])} of {domains} domains are in use, the largest "
        f"with {float(share[worst].max()):.1%} of the samples (entropy {float(found[worst]):.2f} "
        f"of {math.log(domains):.2f}); {ADVICE[by]}",
        stacklevel=2,
    )
