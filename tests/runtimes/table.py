"""Peers at a table: what they say lies on it until a test carries it over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache

import torch

from coterie.core import Fetch, Nodes, Ring, Send
from coterie.core.messages import Message
from coterie.links import wire
from coterie.runtimes.conversation import Bounds, Conversation
from coterie.runtimes.packing import pack
from coterie.runtimes.roll import Roll

from ..world import World

RUN = bytes(range(16))
ROUNDS = 20


@cache
def block(n: int) -> Nodes:
    """All nodes; nobody trains here, so that they can be used again."""
    return World(n=n, counts=(4,) * n).nodes()


class Table:
    """Peers at a table; what they say lies on it until it is carried over."""

    def __init__(self, n: int, window: int = 2) -> None:
        self.on_the_way: deque[tuple[int, int, bytes]] = deque()
        self.talks = [self._talk(n, me, window) for me in range(n)]

    def _talk(self, n: int, me: int, window: int) -> Conversation:
        nodes = block(n)[torch.tensor([me])]
        roll = Roll([peer for peer in range(n) if peer != me], patience=3)
        talk = Conversation(
            nodes,
            RUN,
            roll,
            Bounds(ROUNDS, window),
            lambda to, data: self.on_the_way.append((me, to, data)),
        )
        talk.life = me + 1
        return talk

    def carry(self, *, but: Iterable[int] = ()) -> None:
        """Hand everything over, but what these peers say."""
        while self.on_the_way:
            sender, to, data = self.on_the_way.popleft()
            if sender not in set(but):
                self.talks[to].hear(sender, data)

    def said(self, kind: str) -> list[tuple[int, int]]:
        """From whom to whom frames of a kind are on the way."""
        return [(s, to) for s, to, data in self.on_the_way if wire.peek(data).kind == kind]

    def begin(self, t: int = 0) -> None:
        """All begin together."""
        for talk in self.talks:
            arrive(talk)
        self.carry()
        for talk in self.talks:
            talk.begin(t)
        self.carry()

    def say(self, me: int, message: Message) -> None:
        """Let a peer say its message."""
        talk = self.talks[me]
        talk.say(message, pack(message, talk.nodes, RUN, talk.place))


def arrive(talk: Conversation, rounds: tuple[int, ...] = ()) -> None:
    """Let a peer come and greet everybody."""
    talk.await_start(rounds)
    talk.hello(talk.roll.entries)


def rows(me: int) -> dict[str, torch.Tensor]:
    return {"x": torch.full((1, 3), float(me)).double()}


def ring(talk: Conversation) -> Send:
    return Send(rows(talk.me), talk.nodes.graph(Ring(), 0))


def fetch(talk: Conversation, *of: int) -> Fetch:
    return Fetch(rows(talk.me), torch.tensor([of]).reshape(1, -1))


def frame(kind: str, sender: int, t: int = 0, step: int = 0, value: float = 1.0) -> bytes:
    held = {"x": torch.full((1, 3), value).double()} if kind in ("send", "offer") else {}
    return wire.encode(wire.Frame(RUN, t, step, sender, kind, held))


def welcome(sender: int, t: int, life: int, begun: int = 1) -> bytes:
    rows = {"life": torch.tensor([life, begun]), "rounds": torch.zeros(0, dtype=torch.int64)}
    return wire.encode(wire.Frame(RUN, t, 0, sender, "welcome", rows))


def hello(sender: int, life: int = 9) -> bytes:
    rows = {"life": torch.tensor([life])}
    return wire.encode(wire.Frame(RUN, 0, 0, sender, "hello", rows))
