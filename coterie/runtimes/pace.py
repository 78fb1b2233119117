"""Keeping step: who is too far behind or ahead, and for whom a round has to wait."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.runtimes.packing import SHARING
from coterie.runtimes.roll import Roll
from coterie.runtimes.shelf import Rounds, first_round


@dataclass(frozen=True)
class Pace:
    """How one peer keeps step with the others: with all of them, or with the one that leads."""

    roll: Roll
    rounds: int
    window: int
    leader: int | None  # the server, for a client

    def current(self) -> int | None:
        """The round of the run; None where there is nobody to ask."""
        if self.leader is None:
            return self.roll.current()
        place = self.roll.entries[self.leader].place
        return None if place is None or not self.roll.answers(self.leader) else place[0]

    def unheard(self) -> set[int]:
        """Whose welcome counts before this peer begins; a client needs only that of its server."""
        unheard = self.roll.unheard()
        followed = self.leader in self.roll.everyone() - unheard
        return set() if followed else unheard

    def first(self, mine: Rounds, theirs: dict[int, Rounds]) -> int:
        """The round at which to begin; `theirs` are the rounds of those who start as this one."""
        heard = self.roll.everyone() - self.roll.unheard()
        places = {peer: self.roll.entries[peer].place or (0, 0) for peer in heard}
        if self.leader in places:  # also where this peer has a later checkpoint
            found = places[self.leader][0]
            return found if found in mine else self._real(found)
        if places.keys() <= theirs.keys():  # whoever has begun has just begun, as this one will
            places = {}
        starting = [rounds for peer, rounds in theirs.items() if peer not in places]
        found = first_round(mine, starting, [place[0] for place in places.values()])
        return found if found in mine else self._real(found)

    def jump(self, t: int) -> int:
        """The round to go on with instead of t: a later one where the others have moved on."""
        current = self.current()
        return t if current is None or current <= t + self.window else max(t, self._real(current))

    def _real(self, t: int) -> int:
        """A round of training: also who comes to the very end has the last one to itself."""
        return max(min(t, self.rounds - 1), 0)

    def behind(self, t: int) -> set[int]:
        """Who has to move before round t may begin."""
        return self.roll.behind(t - self.window)

    def on_the_way(self) -> set[int]:
        """Who has not come to the end yet, but comes."""
        return {peer for peer in self.roll.entries if self.roll.comes(peer, (self.rounds + 1, -1))}

    def absent(self) -> set[int]:
        """Who has to come before a round may begin: the leader, or anybody where nobody is here."""
        if self.leader is None:
            return set() if self.roll.company() else self.roll.expected()
        ended = (self.roll.entries[self.leader].place or (0, 0))[0] > self.rounds
        return set() if ended or self.roll.answers(self.leader) else {self.leader}

    def at_work(self, t: int) -> set[int]:
        """The leader, until it is through with round t."""
        busy = self.leader is not None and self.roll.comes(self.leader, (t, SHARING - 1))
        return {self.leader} if busy and self.leader is not None else set()
