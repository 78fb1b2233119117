"""What a round yields and what it is sent: Send, Fetch, Listen, and the Inbox.

Inside the runtimes a node is named by its key, replica * n + id (a server's is negative);
algorithms only see ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from coterie.core.asking import ask_everybody, check_faults, faults
from coterie.core.edges import EdgeList, Edges, EdgeTable, Slots, dense_sum, pad, sum_slots
from coterie.core.fixed_point import sum_heard
from coterie.core.graphs import SERVER, Graph
from coterie.core.transfer import to_device
from coterie.errors import InputError

Rows = Mapping[str, Tensor]
Wanted = tuple[Tensor, Tensor, Tensor]  # of each edge: source key, row of the block, its number

DENSE_DEGREE = 32  # above this many neighbors a matrix product beats gathering


@dataclass(frozen=True)
class Send:
    """Push rows along a graph that every node can compute from (seed, t)."""

    rows: Rows  # name -> [r, ...]
    along: Graph
    sender: Tensor | None = None  # [r] the block row that sends row r; None: row r sends row r
    sealed: bool = False  # receivers learn the sum of what they hear, never a row of it
    metropolis: bool = False  # sealed rows count by their Metropolis-Hastings weights
    apart: Tensor | None = None  # [P] columns of sealed models that have a clip of their own


@dataclass(frozen=True)
class Fetch:
    """Offer my rows, and ask privately chosen peers for theirs."""

    rows: Rows  # name -> [m, ...]
    of: Tensor  # [m, k] ids of the peers each row asks; -1: nobody
    sealed: bool = False  # who asks learns the sum of the answers, never one of them
    apart: Tensor | None = None  # [P] columns of sealed models that have a clip of their own
    full: bool = False  # every entry of `of` is another node: no GPU has to be asked how many are

    @cached_property
    def asked(self) -> Tensor:
        """`of` on the CPU; fetched once, because the host of a GPU has to wait for it."""
        return self.of.cpu()


@dataclass(frozen=True)
class Listen:
    """Send nothing, hear along this graph; `expect` gives the shapes of rows if nobody comes."""

    along: Graph
    expect: Rows = field(default_factory=dict)  # name -> [any, ...]
    sealed: bool = False  # as those who send
    apart: Tensor | None = None  # as those who send


Message = Send | Fetch | Listen


class UnsentError(InputError, ValueError):
    """Rows of this name were not sent: an algorithm misspells it on one side."""


@dataclass(frozen=True)
class Heard:
    """Rows on their way, ordered by (key of the sender, row)."""

    rows: Rows  # name -> [S, ...]
    key: Tensor  # [S] key of the node that sent each row, ascending, on the CPU


def device_of(heard: Heard) -> torch.device:
    """Where rows lie that are on their way."""
    return next((rows.device for rows in heard.rows.values()), heard.key.device)


class Inbox:
    """What a block heard in one superstep; the order never depends on arrival.

    `source[s]` is the node of heard row s; edge e: block row `receiver[e]` heard row `sender[e]`.
    A sealed inbox gives nothing but sums, in fixed point, and none of fewer than two senders.
    """

    def __init__(
        self,
        heard: Heard,
        edges: Edges,
        n: int,
        weight: Callable[[], Tensor],
        seal: _Seal | None = None,
    ) -> None:
        self._rows = dict(heard.rows)
        self._edges = edges
        self._weight = weight
        self._seal = seal
        self._key = heard.key
        self._n = n
        self._device = device_of(heard)

    def __getitem__(self, name: str) -> Tensor:
        """The heard rows of a name: [S, ...]."""
        if self._seal is not None:
            raise PermissionError(f"{name!r} is sealed: use inbox.sum, mix or mean")
        return self._named(name)

    def _named(self, name: str) -> Tensor:
        if name not in self._rows:
            raise _unsent(name, self._rows)
        return self._rows[name]

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    @cached_property
    def source(self) -> Tensor:
        """The node id of every heard row, -1 for the server: [S]."""
        return to_device(torch.where(self._key < 0, SERVER, self._key % self._n), self._device)

    @property
    def sender(self) -> Tensor:
        """For every edge the index of the heard row: [E]."""
        return self._edges.sender

    @property
    def receiver(self) -> Tensor:
        """For every edge the row of this block that heard it: [E]."""
        return self._edges.receiver

    @property
    def hearers(self) -> Tensor:
        """`receiver` on the CPU, where `nodes[...]` and `Send` want it: nobody waits for a GPU."""
        return self._edges.hearers

    @cached_property
    def metropolis(self) -> Tensor:
        """The Metropolis-Hastings weight of every edge: [E]."""
        return to_device(self._weight(), self._device)

    def table(self, name: str | Tensor, otherwise: float = 0) -> Tensor:
        """For every row of the block what it heard, in order of sources: [m, D, ...].

        D is the same for all rows, and large enough; `otherwise` fills the places left over. A
        table [m, D] made of it may stand wherever a value for each edge [E] is asked for.
        """
        rows, slots = self[name] if isinstance(name, str) else name, self._slots
        filled = slots.filled.view(*slots.filled.shape, *[1] * (rows.ndim - 1))
        return torch.where(filled, rows[slots.heard], otherwise)

    def sum(self, name: str | Tensor, weight: Tensor | None = None) -> Tensor:
        """For every row of the block the sum of what it heard, times `weight` [E]: [m, ...].

        Instead of a name: a tensor [S, ...] that was made of the heard rows.
        """
        if self._seal is not None:
            return self._sealed_sum(name, weight)
        rows = self._named(name) if isinstance(name, str) else name
        slots = self._slots
        table = slots.filled if weight is None else self._by_slot(weight)  # [m, D]
        often = self._edges.most > 2 * len(rows)  # a server hears many, but each row is heard once
        if slots.heard.shape[1] > DENSE_DEGREE and often:
            return dense_sum(rows, slots.heard, table.to(rows.dtype))
        if weight is None and slots.full:
            return sum_slots(rows, slots.heard, None)
        return sum_slots(rows, slots.heard, table.to(rows.dtype))

    def _sealed_sum(self, name: str | Tensor, weight: Tensor | None) -> Tensor:
        """The one sum that left the seal: with other weights two sums would give away a row."""
        assert self._seal is not None
        if not isinstance(name, str) or weight is not (
            self.metropolis if self._seal.metropolis else None
        ):
            raise PermissionError(
                "a sealed inbox gives one sum of each name, all rows alike, or by inbox.metropolis "
                "where Send(metropolis=True) says so"
            )
        if self._seal.sums is not None:
            return self._seal.sums[name]
        slots = self._slots
        table = None if weight is None else pad(weight)[slots.edges]
        return sum_heard(self._rows[name], slots.heard, slots.filled, table, self._seal.apart)

    def count(self, keep: Tensor | None = None) -> Tensor:
        """How many rows each row of the block heard, or of those how many to `keep` [E]: [m]."""
        return (self._slots.filled if keep is None else self._by_slot(keep)).sum(1)

    def _by_slot(self, values: Tensor) -> Tensor:
        """Values of edges, [E] or [m, D], as a table [m, D] with 0 in empty slots."""
        table = values if values.ndim == 2 else pad(values)[self._slots.edges]
        return torch.where(self._slots.filled, table, 0)

    @property
    def _slots(self) -> Slots:
        return self._edges.slots


@dataclass(frozen=True)
class _Seal:
    """What may leave a sealed inbox."""

    metropolis: bool  # sums by these weights; False: plain ones
    apart: Tensor | None  # as the message says
    sums: Rows | None = None  # [m, ...] of each name, where secure aggregation made them


def mix(
    own: Tensor,
    inbox: Inbox,
    name: str,
    keep: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Own rows averaged with heard rows; who heard nobody keeps its own.

    All rows count the same, or heard rows count `weight` [E] and the own row what is left of 1;
    `keep` [E] drops edges.
    """
    if name not in inbox:
        _check_silence(inbox, name)
        return own
    if weight is not None:
        weight = weight if keep is None else weight * keep
        rest = 1 - inbox._by_slot(weight).sum(1).to(own)
        return _times(own, rest) + inbox.sum(name, weight)
    if keep is None and inbox._slots.full and inbox._slots.heard.shape[1]:
        return (own + inbox.sum(name)) * (1 / (1 + inbox._slots.heard.shape[1]))
    heard = inbox.sum(name, None if keep is None else keep.to(own.dtype))
    mixed = _times(own + heard, 1 / (1 + inbox.count(keep)).to(own.dtype))
    return torch.where(_column(inbox.count(keep) == 0, own), own, mixed)


def _check_silence(inbox: Inbox, name: str) -> None:
    """Raise where rows of other names came, so that this one is misspelt."""
    if inbox._rows:
        raise _unsent(name, inbox._rows)


def _unsent(name: str, rows: Rows) -> UnsentError:
    there = ", ".join(sorted(rows))
    return UnsentError(f"no rows {name!r} were sent; those that were: {there or 'none'}")


def mean(inbox: Inbox, name: str, otherwise: Tensor, by: str | None = None) -> Tensor:
    """The mean of what each row heard; `otherwise` where it heard nobody.

    With `by`, the heard rows are already multiplied by the weights of that name: two sums are all
    that is needed, which is why a sealed inbox can be averaged too.
    """
    weight = inbox.count().to(otherwise.dtype) if by is None else inbox.sum(by)
    total = _times(inbox.sum(name), 1 / torch.where(weight > 0, weight, 1))
    return torch.where(_column(weight > 0, otherwise), total, otherwise)


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))


def _times(rows: Tensor, factor: Tensor) -> Tensor:
    return rows * _column(factor, rows)


def outgoing(message: Message, keys: Tensor) -> Heard:
    """The rows a block sends or offers, in order; `keys` [m] are its nodes, ascending."""
    if isinstance(message, Listen):
        return Heard({}, keys[:0])
    if isinstance(message, Fetch) or message.sender is None:
        return Heard(message.rows, keys)
    sender = message.sender.cpu()
    order = torch.argsort(sender, stable=True)
    if torch.equal(sender[order], sender):  # as they are: nothing has to be moved
        return Heard(message.rows, keys[sender])
    rows = {n: r[to_device(order, r.device)] for n, r in message.rows.items()}
    return Heard(rows, keys[sender[order]])


def wanted(message: Message, keys: Tensor, n: int) -> Wanted:
    """The edges into a block: source key, row of the block, number of the edge in the graph.

    Sorted by (row, source); for a Fetch the third is the place of the question in `of`.
    """
    if isinstance(message, Fetch):
        of = message.asked
        others = (of >= 0) & (of != (keys % n)[:, None])  # nobody asks itself
        check_faults(faults(of, others, message.full), n)
        place = torch.nonzero(others.flatten()).flatten()
        row = place // max(of.shape[1], 1)
        source = keys[row] // n * n + of.flatten()[place]
        order = torch.argsort(source, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        return source[order], row[order], place[order]
    graph = message.along
    row = torch.searchsorted(keys, graph.target)
    inside = row < len(keys)
    if len(keys):
        inside &= keys[row.clamp(max=len(keys) - 1)] == graph.target
    return graph.source[inside], row[inside], torch.nonzero(inside).flatten()


def deliver(
    message: Message, keys: Tensor, heard: Heard, n: int, edges: Wanted | None = None
) -> Inbox:
    """The inbox of a block, given all rows that could have reached it, and what it `wanted`."""
    if not heard.rows:  # empty is legal: nobody, in the shapes that were expected
        shapes = message.expect if isinstance(message, Listen) else message.rows
        heard = Heard({name: rows[:0] for name, rows in shapes.items()}, heard.key)
    source, row, number = edges or wanted(message, keys, n)
    first = torch.searchsorted(heard.key, source)
    count = torch.searchsorted(heard.key, source, right=True) - first
    edge = torch.arange(len(source))
    within = torch.zeros_like(edge)
    if not bool((count == 1).all()):  # a peer may send several rows, or none
        edge = torch.repeat_interleave(edge, count)
        within = torch.arange(len(edge)) - (torch.cumsum(count, 0) - count)[edge]

    def weight() -> Tensor:
        if isinstance(message, Fetch):
            return _no_weight()
        return message.along.metropolis()[number[edge]]

    place = first[edge] + within
    seal = None
    if message.sealed:
        several = _several(row[edge], source[edge], len(keys))
        edge, place = edge[several], place[several]
        seal = _Seal(isinstance(message, Send) and message.metropolis, message.apart)
    heard, sender = _only_heard(heard, place)
    return Inbox(heard, EdgeList(sender, row[edge], len(keys), device_of(heard)), n, weight, seal)


def deliver_to_all(message: Fetch, keys: Tensor, n: int) -> tuple[Inbox, EdgeTable]:
    """The inbox of a block that holds all nodes and asks itself, made without looking at `of`."""
    edges = ask_everybody(message.of, n, message.full)
    return Inbox(outgoing(message, keys), edges, n, _no_weight), edges


def _no_weight() -> Tensor:
    raise ValueError("Metropolis-Hastings weights need a graph, and a Fetch has none")


def deliver_sums(message: Message, key: Tensor, members: Tensor, sums: Rows, n: int) -> Inbox:
    """The sealed inbox of a block of one node, given the sums [1, ...] over members' keys [k]."""
    nothing = {
        name: total[:1].expand(len(members), *total.shape[1:]) for name, total in sums.items()
    }
    inbox = deliver(message, key, Heard(nothing, members), n)  # the rows are never read
    inbox._seal = _Seal(isinstance(message, Send) and message.metropolis, message.apart, sums)
    return inbox


def _several(row: Tensor, source: Tensor, size: int) -> Tensor:
    """Which edges lead to rows that hear two senders or more: the sum of one is a model."""
    pairs = torch.unique(torch.stack([row, source]), dim=1)
    return (torch.bincount(pairs[0], minlength=size) >= 2)[row]


def _only_heard(heard: Heard, sender: Tensor) -> tuple[Heard, Tensor]:
    """Leave out rows that nobody in the block heard."""
    used = torch.bincount(sender, minlength=len(heard.key)) > 0
    if bool(used.all()):
        return heard, sender
    place = torch.cumsum(used, 0) - 1
    kept = torch.nonzero(used).flatten()  # on the host: a GPU that is handed `used` has to count
    rows = {name: rows[to_device(kept, rows.device)] for name, rows in heard.rows.items()}
    return Heard(rows, heard.key[kept]), place[sender]
