"""Who is in the run and how far: what a peer knows about the others, without clocks or sockets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Place = tuple[int, int]  # round, superstep


@dataclass
class Entry:
    """What is known about one peer."""

    place: Place | None = None  # the last it announced; None: it has not begun
    life: int = 0  # the number its process chose when it started; 0: it never said hello
    heard: bool = False  # it answered the hello of this process
    ready: bool = False  # it said hello and has not begun
    left: bool = False  # it said goodbye
    silent: int = 0  # ticks since it was last heard
    stuck: bool = False  # a wait for it ran out, and it has not moved since


class Roll:
    """All other peers of a run.

    A peer is *present* from its first announcement until it says goodbye or is silent for
    `patience` ticks. Ticks, not seconds: whoever was stopped for an hour finds that one tick
    passed, and does not think that all the others are gone.
    """

    def __init__(self, peers: Iterable[int], patience: int) -> None:
        self.entries = {peer: Entry() for peer in peers}
        self.patience = patience

    def greet(self, peer: int, life: int) -> bool:
        """A peer said hello; True where it started since we last knew it."""
        entry = self.entries[peer]
        entry.silent = 0
        if entry.life == life:
            return False
        if entry.life:  # what was known is of a process that is no more
            entry = self.entries[peer] = Entry(heard=entry.heard, stuck=entry.stuck)
        entry.life, entry.ready = life, entry.place is None
        return True

    def welcome(self, peer: int, begun: bool) -> None:
        """A peer answered: what it said before may be old, what it says from now on is not."""
        entry = self.entries[peer]
        entry.heard, entry.silent = True, 0
        entry.ready = not begun and entry.place is None

    def move(self, peer: int, place: Place) -> bool:
        """A peer was heard at this place; True where it was not present before.

        Who left may still answer questions, but is back only when it says hello.
        """
        entry = self.entries[peer]
        before = self.present(peer) or entry.left
        entry.silent, entry.ready = 0, False
        if entry.place is None or place > entry.place:
            entry.place, entry.stuck = place, False
        return not before

    def leave(self, peer: int) -> None:
        """A peer said goodbye."""
        self.entries[peer].left, self.entries[peer].ready = True, False

    def begin(self, place: Place) -> None:
        """The run begins here, with all who are ready."""
        for entry in self.entries.values():
            if entry.ready:
                entry.place, entry.ready = place, False

    def tick(self) -> None:
        """Some time has passed."""
        for entry in self.entries.values():
            entry.silent += 1

    def give_up(self, peers: Iterable[int]) -> None:
        """A wait for these peers ran out: nobody waits for them until they move."""
        for peer in peers:
            self.entries[peer].stuck = True

    def present(self, peer: int) -> bool:
        """Whether a peer is in the run and was heard lately."""
        entry = self.entries[peer]
        return entry.place is not None and not entry.left and entry.silent < self.patience

    def everyone(self) -> set[int]:
        """All present peers."""
        return {peer for peer in self.entries if self.present(peer)}

    def unheard(self) -> set[int]:
        """The peers with which this one has not exchanged greetings, both ways."""
        known = {peer for peer, entry in self.entries.items() if entry.heard and entry.life}
        return self.expected() - known

    def expected(self) -> set[int]:
        """The peers that are in the run or may still come."""
        return {peer for peer, entry in self.entries.items() if not entry.left}

    def answers(self, peer: int) -> bool:
        """Whether to wait for an answer of a peer."""
        return self.present(peer) and not self.entries[peer].stuck

    def serves(self, peer: int, place: Place) -> bool:
        """Whether a peer may be asked for what it offers at a place; who leaves answers for a while
        to those who are behind it."""
        entry = self.entries[peer]
        heard = entry.silent < self.patience and not entry.stuck
        return heard and entry.place is not None and not (entry.left and entry.place < place)

    def company(self) -> set[int]:
        """The peers worth waiting for."""
        return {peer for peer in self.entries if self.answers(peer)}

    def comes(self, peer: int, place: Place) -> bool:
        """Whether to wait until a peer comes to this place; who is past it will not.

        One that started again will begin where the others are.
        """
        entry = self.entries[peer]
        if entry.ready:
            return entry.silent < self.patience and not entry.stuck
        return self.answers(peer) and (entry.place or place) <= place

    def behind(self, t: int) -> set[int]:
        """The peers worth waiting for that have not reached round t."""
        return {peer for peer in self.company() if (self.entries[peer].place or (0, 0)) < (t, 0)}

    def passed(self, place: Place) -> bool:
        """Whether every present peer has announced a later place."""
        return all((self.entries[peer].place or place) > place for peer in self.everyone())

    def current(self) -> int | None:
        """The round that at least half of the peers worth waiting for have reached.

        Not the furthest: one peer that claims to be at the end must not pull everybody there.
        """
        places = [self.entries[peer].place or (0, 0) for peer in self.company()]
        return sorted(places)[(len(places) - 1) // 2][0] if places else None
