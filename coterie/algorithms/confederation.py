"""What all learners of a confederation do alike: check what was published, rebuild every child.

Nothing here depends on who does it: the same rows give the same models, ids and bytes everywhere.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from coterie.core import Inbox, Nodes
from coterie.core.lineage import ROOT, model_id, update_id
from coterie.core.messages import Rows

MOST_SAMPLES = 1 << 40  # that anybody can claim to have
FAULTS = (  # what may be wrong with what a learner sent; its number is kept in the state
    "",
    "sent two updates of one model",
    "claims an impossible number of samples",
    "published more choices than it may",
    "published a choice without updates",
    "chose updates that do not exist",
    "published a false id",
    "merged other bytes than came here: it, or who made them, tells peers different things",
)
TWICE, SAMPLES, MANY, EMPTY, MISSING, FALSE, OTHER = range(1, len(FAULTS))


def everyone(rows: Rows, who: Tensor, inbox: Inbox, nodes: Nodes) -> tuple[Rows, Tensor]:
    """Own rows and those heard from other blocks, by (key, row), and the key of each [S]."""
    own = nodes.key[who.cpu()]
    heard = _keys(inbox, nodes)
    other = torch.nonzero(~torch.isin(heard, nodes.key)).flatten()
    if not len(other):
        return rows, own
    key = torch.cat([own, heard[other]])
    order = torch.argsort(key, stable=True)

    def joined(name: str, values: Tensor) -> Tensor:
        both = torch.cat([values, inbox[name][other.to(values.device)].to(values.device)])
        return both[order.to(values.device)]

    return {name: joined(name, values) for name, values in rows.items()}, key[order]


def _keys(inbox: Inbox, nodes: Nodes) -> Tensor:
    """The key of every heard row [S]: its node is known, its replica is that of who heard it."""
    replica = torch.zeros(len(inbox.source), dtype=torch.int64)
    replica[inbox.sender.cpu()] = nodes.replica[inbox.receiver.cpu()]
    return replica * nodes.n + inbox.source.cpu()


def as_ids(rows: Tensor) -> list[bytes]:
    """Ids of uint8 rows [S, ID]."""
    return [row.tobytes() for row in rows.cpu().contiguous().numpy()]


def as_rows(ids: list[bytes]) -> Tensor:
    """Ids as uint8 rows [S, ID], on the CPU."""
    whole = torch.frombuffer(bytearray(b"".join(ids) or bytes(1)), dtype=torch.uint8)
    return whole[: len(ids) * len(ROOT)].view(len(ids), len(ROOT)).clone()


@dataclass(frozen=True)
class Updates:
    """All updates of one round that hold water."""

    t: int
    n: int  # nodes of one population
    params: Tensor  # [S, P]
    key: list[int]  # [S] replica * n + learner
    parent: list[bytes]  # [S]
    samples: list[int]  # [S]
    shared: bool = True  # others hold their own copies; False: there is nothing to compare

    @cached_property
    def place(self) -> dict[tuple[int, bytes], int]:
        """The row of each (key, parent)."""
        return {pair: row for row, pair in enumerate(zip(self.key, self.parent, strict=True))}

    @cached_property
    def of_model(self) -> dict[tuple[int, bytes], list[int]]:
        """The rows of each (replica, parent)."""
        found: dict[tuple[int, bytes], list[int]] = {}
        for row, (key, parent) in enumerate(zip(self.key, self.parent, strict=True)):
            found.setdefault((key // self.n, parent), []).append(row)
        return found

    def nodes(self, rows: Iterable[int]) -> list[int]:
        """The learners who made these updates."""
        return [self.key[row] % self.n for row in rows]

    def name(self, row: int) -> bytes:
        """The id of an update."""
        return update_id(self.t, self.key[row] % self.n, self.parent[row])

    def child(self, rows: list[int]) -> bytes:
        """The id of the average of these updates, which have one parent."""
        return model_id(self.parent[rows[0]], [self.name(row) for row in rows])

    @cached_property
    def _digests(self) -> dict[int, bytes]:
        return {}

    def digest(self, row: int) -> bytes:
        """A hash of what came as this update: ids say nothing about weights."""
        if row not in self._digests:
            data = self.params[row].detach().cpu().contiguous().numpy().tobytes()
            samples = self.samples[row].to_bytes(8, "big")
            self._digests[row] = hashlib.sha256(samples + data).digest()
        return self._digests[row]

    def content(self, rows: list[int]) -> bytes:
        """A hash of all that makes the average of these updates."""
        if not self.shared:
            return ROOT
        ordered = sorted(rows, key=self.name)
        return hashlib.sha256(b"".join(self.digest(row) for row in ordered)).digest()


def checked_updates(
    t: int, n: int, rows: Rows, key: Tensor, faults: Tensor, shared: bool = True
) -> Updates:
    """The updates that hold water; who sent others is noted in `faults` [replicas * n]."""
    parents, samples, keys = as_ids(rows["parent"]), rows["samples"].tolist(), key.tolist()
    times = Counter(zip(keys, parents, strict=True))
    good = []
    for row, pair in enumerate(zip(keys, parents, strict=True)):
        fault = TWICE if times[pair] > 1 else 0
        fault = fault or (0 if 0 <= samples[row] <= MOST_SAMPLES else SAMPLES)
        faults[pair[0]] = int(faults[pair[0]]) or fault  # the first is the cause of others
        good += [] if fault else [row]
    params = rows["params"]
    if len(good) < len(keys):
        params = params[torch.tensor(good, dtype=torch.int64, device=params.device)]
    return Updates(
        t,
        n,
        params,
        [keys[row] for row in good],
        [parents[row] for row in good],
        [samples[row] for row in good],
        shared,
    )


def siblings(updates: Updates, mine: list[int]) -> Tensor:
    """For every choice [c] the other updates of the model it is about: [2, E], choice and update.

    Where models begin there is nothing to compare: everybody publishes its own.
    """
    edges = [
        (choice, other)
        for choice, own in enumerate(mine)
        if updates.parent[own] != ROOT
        for other in updates.of_model[updates.key[own] // updates.n, updates.parent[own]]
        if other != own
    ]
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


def choices(
    updates: Updates, mine: list[int], row: list[int], other: list[int]
) -> dict[str, Tensor]:
    """Choices as they travel: the own update of each [c], and those accepted [E] by choice."""
    merged = [[own] for own in mine]
    for choice, accepted in zip(row, other, strict=True):
        merged[choice].append(accepted)
    return {
        "parent": as_rows([updates.parent[own] for own in mine]),
        "merged": masks([updates.nodes(rows) for rows in merged], updates.n),
        "child": as_rows([updates.child(rows) for rows in merged]),
        "content": as_rows([updates.content(rows) for rows in merged]),
    }


def masks(members: Sequence[Sequence[int]], n: int) -> Tensor:
    """Some of n learners a row: bool [rows, n]."""
    made = torch.zeros(len(members), n, dtype=torch.bool)
    for row, some in enumerate(members):
        made[row, list(some)] = True
    return made


@dataclass(frozen=True)
class Child:
    """A model that somebody published."""

    parent: bytes
    updates: tuple[int, ...]  # rows of the updates, in the order of their ids
    followers: tuple[int, ...]  # ids of those who published it


Family = dict[bytes, Child]  # by id, ascending


def families(
    updates: Updates, rows: Rows, key: Tensor, allowed: int, faults: Tensor
) -> list[Family]:
    """The distinct models of every replica, out of all choices that hold water."""
    found: list[dict[bytes, Child]] = [{} for _ in range(len(faults) // updates.n)]
    for sender, name, members in _checked_choices(updates, rows, key, allowed, faults):
        replica, learner = divmod(sender, updates.n)
        known = found[replica].get(name)
        before = known.followers if known else ()
        ordered = tuple(sorted(members, key=updates.name))
        found[replica][name] = Child(updates.parent[members[0]], ordered, (*before, learner))
    return [dict(sorted(family.items())) for family in found]


def _checked_choices(
    updates: Updates, rows: Rows, key: Tensor, allowed: int, faults: Tensor
) -> Iterator[tuple[int, bytes, list[int]]]:
    """Sender, id and rows of updates of every choice that holds water, each once."""
    keys, parents, masked = key.tolist(), as_ids(rows["parent"]), rows["merged"].cpu()
    claims = list(zip(as_ids(rows["child"]), as_ids(rows["content"]), strict=True))
    times, seen = Counter(keys), set()
    for sender, parent, (claim, content), merged in zip(keys, parents, claims, masked, strict=True):
        first = sender - sender % updates.n
        learners = [first + learner for learner in torch.nonzero(merged).flatten().tolist()]
        members = [updates.place.get((learner, parent), -1) for learner in learners]
        fault = MANY if times[sender] > allowed else _fault(updates, members, claim, content)
        faults[sender] = int(faults[sender]) or fault
        if not fault and (sender, claim) not in seen:
            seen.add((sender, claim))
            yield sender, claim, members


def _fault(updates: Updates, members: list[int], claim: bytes, content: bytes) -> int:
    if not members:
        return EMPTY
    if min(members) < 0:
        return MISSING
    if updates.child(members) != claim:
        return FALSE
    return 0 if updates.content(members) == content else OTHER


def rebuilt(updates: Updates, children: list[Child]) -> Tensor:
    """The weighted means [C, P] of the children's updates: the same bytes wherever it is done.

    Added one after the other in the order of their ids, in float64; who has no samples counts as
    if it had one.
    """
    params = updates.params
    longest = max((len(child.updates) for child in children), default=0)
    total = params.new_zeros(len(children), params.shape[1], dtype=torch.float64)
    weights = total.new_zeros(len(children), 1)
    for slot in range(longest):
        some = [c for c, child in enumerate(children) if slot < len(child.updates)]
        taken = [children[c].updates[slot] for c in some]
        where = torch.tensor(some, device=params.device)
        weight = total.new_tensor([[max(updates.samples[row], 1)] for row in taken])
        rows = params[torch.tensor(taken, device=params.device)].double()
        total[where] += rows * weight
        weights[where] += weight
    return (total / weights).to(params.dtype)
