"""Drives the generators of several blocks side by side, superstep by superstep."""

from __future__ import annotations

import abc
from typing import Any, TypeGuard

import torch
from torch import Tensor

from coterie.core.algorithm import Program
from coterie.core.fixed_point import lengths
from coterie.core.graphs import SERVER
from coterie.core.messages import (
    Fetch,
    Heard,
    Inbox,
    Message,
    Rows,
    Wanted,
    deliver,
    deliver_to_all,
    outgoing,
    wanted,
)
from coterie.core.turns import Returned, turn
from coterie.errors import InputError
from coterie.links import wire
from coterie.links.letter_sizes import secure_sum_bytes
from coterie.links.memory import MemoryLink
from coterie.links.quorum import MAJORITY, SMALLEST, quorum
from coterie.links.wire import Frame
from coterie.runtimes.tally import Tally


class Exchange(abc.ABC):
    """Answers one superstep: takes a message from every block and gives every block its inbox."""

    n: int  # nodes of one population
    counted: Tensor  # [replicas * n] bytes that each node has sent so far, less those of `tally`
    tally: Tally | None = None  # what a device has counted since
    server_sent: Tensor  # [replicas] bytes that each replica's server has sent so far
    threshold: float  # share of its members that a secure sum needs

    @property
    def sent(self) -> Tensor:
        """Bytes that each node has sent so far: [replicas * n]; waits for a GPU that counts some.

        ValueError where the GPU found that a Fetch was wrong.
        """
        if self.tally is not None:
            self.counted = self.counted + self.tally.read(self.n)
            self.tally = None
        return self.counted

    @sent.setter
    def sent(self, counted: Tensor) -> None:
        self.counted, self.tally = counted, None

    @abc.abstractmethod
    def superstep(
        self, t: int, step: int, keys: list[Tensor], messages: list[Message]
    ) -> list[Inbox]:
        """The inboxes of the blocks whose nodes are `keys`."""

    def count(self, keys: Tensor, message: Message, heard: Heard, edges: Wanted) -> None:
        """Count what reaches a block, each copy at its sender, and each question at its asker."""
        source, row, _ = edges
        if isinstance(message, Fetch):  # a peer that is asked twice answers once
            pairs = torch.unique(torch.stack([source, row]), dim=1)
            source, row = pairs[0].contiguous(), pairs[1].contiguous()
        rows = torch.searchsorted(heard.key, source, right=True)
        rows -= torch.searchsorted(heard.key, source)
        kind = "offer" if isinstance(message, Fetch) else "send"
        for copies in rows.unique().tolist():
            if copies:
                self._add(
                    source[rows == copies], wire.frame_size(kind, _schema(heard.rows, copies))
                )
        if isinstance(message, Fetch):
            self._add(keys[row], wire.frame_size("ask", ()))

    def count_sealed(
        self,
        place: tuple[int, int],
        keys: Tensor,
        heard: Heard,
        edges: Wanted,
        apart: Tensor | None,
    ) -> None:
        """Count the letters of the secure sums that a block gets, as if nobody dropped out."""
        source, row, _ = edges
        there = torch.isin(source, heard.key)
        groups: dict[int, set[int]] = {}
        for one, peer in zip(keys[row[there]].tolist(), source[there].tolist(), strict=True):
            groups.setdefault(one, set()).add(peer)
        parts = tuple(
            size for _, rows in sorted(heard.rows.items()) for size in lengths(rows, apart)
        )
        for one, group in groups.items():
            if len(group) >= SMALLEST:
                self._count_sum(place, one, sorted(group), parts)

    def _count_sum(
        self, place: tuple[int, int], requester: int, group: list[int], parts: tuple[int, ...]
    ) -> None:
        least = quorum(len(group), self.threshold)
        me = SERVER if requester < 0 else requester % self.n
        ids = [key % self.n for key in group]
        asked, answered = secure_sum_bytes(place, me, ids, least, parts)
        sent = self.counted if requester >= 0 else self.server_sent
        sent.numpy()[requester] += asked  # the server of replica r has the key r - replicas
        self.counted.numpy()[group] += answered

    def _add(self, source: Tensor, size: int) -> None:
        """Count `size` bytes at every one of these keys."""
        nodes, replicas = len(self.counted), len(self.server_sent)
        copies = torch.bincount(source + replicas, minlength=replicas + nodes)
        self.server_sent += size * copies[:replicas]
        self.counted += size * copies[replicas:]


def _schema(rows: Rows, copies: int) -> wire.Schema:
    return tuple(
        (name, str(part.dtype).removeprefix("torch."), (copies, *part.shape[1:]))
        for name, part in rows.items()
    )


class DirectExchange(Exchange):
    """Hands tensors over as they are: the simulation."""

    def __init__(self, n: int, replicas: int = 1, threshold: float = MAJORITY) -> None:
        self.n = n
        self.threshold = threshold
        self.counted = torch.zeros(n * replicas, dtype=torch.int64)
        self.server_sent = torch.zeros(replicas, dtype=torch.int64)

    def superstep(
        self, t: int, step: int, keys: list[Tensor], messages: list[Message]
    ) -> list[Inbox]:
        if len(messages) == 1 and self._asks_all(messages[0], keys[0]):
            return [self._answer_all(messages[0], keys[0])]
        heard = merge([outgoing(m, k) for m, k in zip(messages, keys, strict=True)])
        return [self._answer((t, step), m, k, heard) for m, k in zip(messages, keys, strict=True)]

    def _answer(self, when: tuple[int, int], message: Message, keys: Tensor, heard: Heard) -> Inbox:
        """Count and deliver what a block hears."""
        edges = wanted(message, keys, self.n)
        if message.sealed:
            self.count_sealed(when, keys, heard, edges, message.apart)
        else:
            self.count(keys, message, heard, edges)
        return deliver(message, keys, heard, self.n, edges)

    def _asks_all(self, message: Message, keys: Tensor) -> TypeGuard[Fetch]:
        """Whether this is a Fetch of a block that holds everybody."""
        if not isinstance(message, Fetch) or message.sealed or not message.rows:
            return False
        return message.of.numel() > 0 and torch.equal(keys, torch.arange(len(self.counted)))

    def _answer_all(self, message: Fetch, keys: Tensor) -> Inbox:
        """Count and deliver what everybody hears, where `of` lies: no host waits for it."""
        inbox, edges = deliver_to_all(message, keys, self.n)
        self.tally = self.tally or Tally(len(keys), message.of.device)
        offer = wire.frame_size("offer", _schema(message.rows, 1))
        self.tally.add(message, edges, wire.frame_size("ask", ()), offer)
        if message.of.is_cpu:  # whoever asked wrongly is told at once
            _ = self.sent
        return inbox


class FrameExchange(Exchange):
    """Sends every row as a frame of the wire format through a memory link: one node a block."""

    def __init__(self, n: int, run: bytes = bytes(16), threshold: float = MAJORITY) -> None:
        self.n = n
        self.run = run
        self.threshold = threshold
        self.counted = torch.zeros(n, dtype=torch.int64)
        self.server_sent = torch.zeros(1, dtype=torch.int64)
        self.link = MemoryLink()

    def superstep(
        self, t: int, step: int, keys: list[Tensor], messages: list[Message]
    ) -> list[Inbox]:
        offers = {int(k): outgoing(m, k) for m, k in zip(messages, keys, strict=True)}
        for key, message in zip(keys, messages, strict=True):
            edges = wanted(message, key, self.n)
            if message.sealed:
                rows = merge(list(offers.values()))
                self.count_sealed((t, step), key, rows, edges, message.apart)
            for source in dict.fromkeys(edges[0].tolist()):
                if isinstance(message, Fetch):
                    self._post(Frame(self.run, t, step, int(key), "ask", {}), source, message)
                if source in offers and len(offers[source].key):
                    kind = "offer" if isinstance(message, Fetch) else "send"
                    frame = Frame(self.run, t, step, source, kind, offers[source].rows)
                    self._post(frame, int(key), message)
        return [self._inbox(m, k) for m, k in zip(messages, keys, strict=True)]

    def _post(self, frame: Frame, to: int, answer: Message) -> None:
        data = wire.encode(frame)
        if not answer.sealed:  # those rows never travel; what does is counted as a whole
            self._add(torch.tensor([frame.sender]), len(data))
        self.link.send(to, data)

    def _inbox(self, message: Message, key: Tensor) -> Inbox:
        frames = [wire.decode(data) for data in self.link.receive(int(key))]
        parts = [
            Heard(f.rows, torch.full((len(next(iter(f.rows.values()))),), f.sender))
            for f in frames
            if f.rows
        ]
        return deliver(message, key, merge(parts), self.n)


def merge(parts: list[Heard]) -> Heard:
    """All rows on their way, ordered by (key, row)."""
    parts = [part for part in parts if part.rows and len(part.key)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Heard({}, torch.empty(0, dtype=torch.int64))
    if any(set(part.rows) != set(parts[0].rows) for part in parts):
        names = sorted({name for part in parts for name in part.rows})
        raise InputError(
            f"different rows are sent in one step: {', '.join(names)}; where a server sends, its "
            "clients listen, and all nodes send the same"
        )
    key = torch.cat([part.key for part in parts])
    order = torch.argsort(key, stable=True)
    rows = {name: torch.cat([p.rows[name] for p in parts]) for name in parts[0].rows}
    return Heard({name: row[order.to(row.device)] for name, row in rows.items()}, key[order])


def play(t: int, keys: list[Tensor], programs: list[Program], exchange: Exchange) -> list[Any]:
    """Run one program a block to the end; returns what each returns."""
    _check_generators(programs)
    results: list[Any] = [None] * len(programs)

    def advance(block: int, inbox: Inbox | None) -> Message | None:
        said = turn(programs[block], inbox, len(keys[block]))
        if not isinstance(said, Returned):
            return said
        results[block] = said.state
        return None

    messages = [advance(block, None) for block in range(len(programs))]
    step = 0
    while any(message is not None for message in messages):
        if any(message is None for message in messages):
            raise _uneven(t, step, keys, messages)
        asked = [message for message in messages if message is not None]
        if len({message.sealed for message in asked}) > 1:
            raise RuntimeError(f"round {t}: some blocks sealed superstep {step} and some did not")
        inboxes = exchange.superstep(t, step, keys, asked)
        messages = [advance(block, inbox) for block, inbox in enumerate(inboxes)]
        step += 1
    return results


def _check_generators(programs: list[Program]) -> None:
    for program in programs:
        if not hasattr(program, "send"):
            raise InputError(
                f"`round` of an algorithm is a generator, and here it returned a "
                f"{type(program).__name__}; let it send (`inbox = yield Send(...)`), or, where it "
                "sends nothing, write `yield` after its `return`"
            )


def _uneven(t: int, step: int, keys: list[Tensor], messages: list[Message | None]) -> InputError:
    """The error where some programs yield in a superstep and others have ended."""
    yielded = {bool((key < 0).any()) for key, m in zip(keys, messages, strict=True) if m}
    if len(yielded) == 1 and any(bool((key < 0).any()) for key in keys):
        more, fewer = ("serve", "round") if yielded == {True} else ("round", "serve")
        return InputError(
            f"round {t}: `{more}` yielded a message in superstep {step}, but `{fewer}` had ended; "
            "the server and its clients must yield the same number of times"
        )
    return InputError(
        f"round {t}: some blocks yielded a message in superstep {step} and some did not; "
        "every block must yield the same number of times"
    )
