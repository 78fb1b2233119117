"""Sealed supersteps over links: a peer is the requester of its own sum, and a member of others'.

The protocol itself is in coterie.links.secure; here are its letters' way, and what each sum is of.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.core.fixed_point import joined, lengths, pieces
from coterie.core.messages import Heard, Inbox, Listen, Message, Rows, Send, deliver, deliver_sums
from coterie.core.messages import outgoing as rows_of
from coterie.core.nodes import Nodes
from coterie.links import wire
from coterie.links.quorum import SMALLEST, quorum
from coterie.links.wire import WireError
from coterie.runtimes.logs import tell
from coterie.runtimes.mailbox import Late
from coterie.runtimes.packing import sources, targets
from coterie.runtimes.roll import Place, Roll

if TYPE_CHECKING:
    from coterie.links.collector import Collector
    from coterie.links.letters import Identity, Session
    from coterie.links.secure import Member, Numbers

Write = Callable[[int, bytes | None, Place], None]  # to whom, a letter (None: I have none), where
ASKS = ("request", "keys", "shares", "survivors", "unmask")  # what a requester writes


@dataclass(frozen=True)
class Vector:
    """What a peer would add to the sums of one superstep."""

    message: Message
    parts: list[Numbers]
    clips: tuple[int, ...]


class Seals:
    """One peer's part in the secure sums of a run; each needs `threshold` of its members."""

    def __init__(
        self,
        nodes: Nodes,
        run: bytes,
        roll: Roll,
        identity: Identity,
        write: Write,
        threshold: float,
    ) -> None:
        from coterie.links.secure import Register

        self.nodes = nodes
        self.run = run
        self.roll = roll
        self.identity = identity
        self.write = write
        self.threshold = threshold
        self.register = Register()
        self.vectors: dict[Place, Vector | None] = {}
        self.joined: dict[tuple[Place, int], Member] = {}  # by requester
        self.collector: Collector | None = None
        self.place: Place = (-1, 0)
        self.gone: set[int] = set()  # who has nothing to add up in this superstep

    def say(self, message: Message, place: Place) -> None:
        """Come to a sealed superstep: offer the own vector, and ask for the own sum."""
        from coterie.links.collector import Collector
        from coterie.links.letters import Session

        self.place, self.gone, self.collector = place, set(), None
        self.vectors[place] = _vector(message, self.nodes)
        group = tuple(sources(message, self.nodes))
        if len(group) < SMALLEST:
            return
        least = quorum(len(group), self.threshold)
        sizes = _sizes(message)
        nonce = secrets.token_bytes(16)
        session = Session(self.run, *place, self.identity.me, group, least, sizes, nonce)
        self.collector = Collector(self.identity, session)
        self._send(self.collector.begin())

    def _send(self, letters: dict[int, bytes]) -> None:
        for peer, letter in letters.items():
            self.write(peer, letter, self.place)

    def missing(self) -> set[int]:
        """Whose answer to come is worth waiting for."""
        if self.collector is None:
            return set()
        return {p for p in self.collector.waiting - self.gone if self.roll.answers(p)}

    def lose(self, peer: int) -> None:
        """A peer has nothing to add up."""
        self.gone.add(peer)

    def step(self) -> bool:
        """Begin the next phase of the own sum; False: it is there, or there will be none."""
        from coterie.links.letters import SecureError

        if self.collector is None or self.collector.result is not None:
            return False
        try:
            letters = self.collector.advance()
        except SecureError as error:
            facts = {"peer": self.identity.me, "round": self.place[0], "why": repr(str(error))}
            tell("no sum", facts, logging.WARNING)
            self.collector = None
            return False
        self._send(letters)
        return bool(letters)

    @property
    def members(self) -> set[int]:
        """Whose vectors are in the own sum."""
        result = None if self.collector is None else self.collector.result
        return set() if result is None else set(result.members)

    def inbox(self, message: Message) -> Inbox:
        """What this peer may know of the superstep: the sum, and who is in it."""
        result = None if self.collector is None else self.collector.result
        key, n = self.nodes.key, self.nodes.n
        if result is None:
            return deliver(message, key, Heard({}, torch.empty(0, dtype=torch.int64)), n)
        parts, sums = iter(result.parts), {}
        for name, rows in sorted(_shapes(message).items()):
            found = [torch.from_numpy(next(parts))[None] for _ in lengths(rows, message.apart)]
            sums[name] = joined(found, message.apart).to(rows).view(1, *rows.shape[1:])
        return deliver_sums(message, key, torch.tensor(result.members), sums, n)

    def hear(self, sender: int, place: Place, letter: bytes) -> None:
        """Take a letter of this superstep or an earlier one; WireError where it is no good."""
        from coterie.links.letters import Letter, SecureError

        try:
            if Letter.unpack(letter).kind in ASKS:
                self._answer(sender, place, letter)
            elif place < self.place or self.collector is None:
                raise Late
            else:
                self.collector.hear(sender, letter)
        except SecureError as error:
            raise WireError(str(error)) from None

    def _answer(self, sender: int, place: Place, letter: bytes) -> None:
        from coterie.links.letters import Letter, SecureError, Session

        member = self.joined.get((place, sender))
        if member is None:
            vector = self.vectors.get(place)
            if vector is None:
                self.write(sender, None, place)
                return
            session = Session.unpack(Letter.unpack(letter).body)  # its signature is checked below
            if (session.run, (session.round, session.superstep)) != (self.run, place):
                raise SecureError("a session of another superstep")
            member = self._join(session, vector)
            reply = member.hear(letter)
            self.joined[place, sender] = member
        else:
            reply = member.hear(letter)
        self.write(sender, reply, place)
        if not member.expects:
            del self.joined[place, sender]

    def _join(self, session: Session, vector: Vector) -> Member:
        """This peer as a member: where a graph says who hears whom, the group must be that."""
        from coterie.links.letters import SecureError
        from coterie.links.secure import Member

        message, parts = vector.message, vector.parts
        if session.threshold != quorum(len(session.group), self.threshold):
            raise SecureError(f"a threshold of {session.threshold}, which this run does not have")
        if isinstance(message, Send):
            graph = message.along
            due = sorted(set(graph.source[graph.target == session.requester].tolist()))
            if session.requester not in targets(message, self.nodes) or due != list(session.group):
                raise SecureError("a group that the graph does not have")
            if message.metropolis:
                weight = _weight(message, self.identity.me, session.requester)
                parts = [part * weight for part in parts]
        return Member(self.identity, self.register, parts, vector.clips)

    def release(self, place: Place, oldest: Place) -> None:
        """Forget vectors that nobody will ask for any more."""
        for old in [p for p in self.vectors if p < place]:
            if old < oldest or self.roll.passed(old):
                del self.vectors[old]
        for key in [key for key in self.joined if key[0] < place and key[0] not in self.vectors]:
            del self.joined[key]


def _shapes(message: Message) -> Rows:
    return message.expect if isinstance(message, Listen) else message.rows


def _sizes(message: Message) -> tuple[int, ...]:
    every = sorted(_shapes(message).items())
    return tuple(size for _, rows in every for size in lengths(rows, message.apart))


def _vector(message: Message, nodes: Nodes) -> Vector | None:
    """The one row of each name in pieces; None where there is none, or it has diverged."""
    from coterie.links.secure import clips_of

    heard = rows_of(message, nodes.key)
    if len(heard.key) != 1 or not heard.rows:
        return None
    every = [rows for _, rows in sorted(heard.rows.items())]
    parts = [_numbers(part) for rows in every for part in pieces(rows, message.apart)]
    if not all(np.isfinite(part).all() for part in parts):
        return None
    return Vector(message, parts, clips_of(parts))


def _numbers(rows: Tensor) -> Numbers:
    found: Numbers = rows[0].detach().cpu().double().reshape(-1).numpy()
    return found


def _weight(message: Send, source: int, target: int) -> float:
    graph = message.along
    edge = (graph.source == source) & (graph.target == target)
    return float(graph.metropolis()[edge][0])


def letter_frame(run: bytes, me: int, place: Place, letter: bytes) -> bytes:
    """A letter on its way through a link."""
    words = torch.frombuffer(bytearray(letter), dtype=torch.uint8)
    return wire.encode(wire.Frame(run, *place, me, "seal", {"letter": words}))


def letter_in(data: bytes, limits: wire.Limits) -> bytes:
    """The letter in a frame; WireError where there is none."""
    rows = wire.decode(data, limits, (("letter", "uint8", (wire.ANY,)),)).rows
    found: bytes = rows["letter"].numpy().tobytes()
    return found
