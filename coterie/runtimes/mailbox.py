"""Frames that wait until they are read: of this superstep, and of later ones within a window."""

from __future__ import annotations

from coterie.links.wire import WireError
from coterie.runtimes.roll import Place

SUPERSTEPS = 256  # of a round; a frame of a later one is no frame of ours


class Late(Exception):
    """A frame of a superstep that is over: dropped, but nobody's fault."""


class Mailbox:
    """Frames by place, kind and sender; what it holds is bounded whatever a peer sends.

    At most `window` rounds ahead, one frame a sender, kind and superstep. Those of the superstep at
    hand are all needed, however large the models are; of later ones `ahead` bytes are kept, and
    beyond these a sender has its equal share of as many bytes again, so that one peer which fills
    the box does not silence the others.
    """

    def __init__(self, peers: int, window: int, ahead: int) -> None:
        self.window = window
        self.ahead = ahead
        self.share = ahead // max(peers, 1)
        self.place: Place = (0, 0)
        self.furthest = window  # round
        self.frames: dict[tuple[Place, str], dict[int, bytes]] = {}
        self.held: dict[int, int] = {}  # bytes of later supersteps, by sender

    def put(self, place: Place, kind: str, sender: int, data: bytes) -> None:
        """Keep a frame; Late where its superstep is over, WireError where it must not come."""
        if place < self.place:
            raise Late
        if place[0] > self.furthest or not 0 <= place[1] < SUPERSTEPS:
            raise WireError(f"round {place[0]}, superstep {place[1]} is too far ahead")
        if sender in self.frames.get((place, kind), ()):
            raise WireError(f"a second {kind!r} of one superstep")
        if place > self.place:
            self._reserve(sender, len(data))
        self.frames.setdefault((place, kind), {})[sender] = data

    def _reserve(self, sender: int, size: int) -> None:
        mine = self.held.get(sender, 0)
        if sum(self.held.values()) + size > self.ahead and mine + size > self.share:
            raise WireError(f"no room: {mine} bytes of this peer wait already")
        self.held[sender] = mine + size

    def senders(self, place: Place, kind: str) -> set[int]:
        """Of whom there is a frame."""
        return set(self.frames.get((place, kind), ()))

    def take(self, place: Place, kind: str) -> dict[int, bytes]:
        """Read and remove the frames of a kind, in the order of their senders."""
        found = self.frames.pop((place, kind), {})
        if place > self.place:
            self._release(found)
        return dict(sorted(found.items()))

    def await_start(self, rounds: tuple[int, ...]) -> None:
        """Take frames of all rounds at which the run may begin."""
        self.place = (min(rounds, default=0), 0)
        self.furthest = max(rounds, default=0) + self.window

    def advance(self, place: Place) -> list[tuple[Place, int]]:
        """Come to a later superstep; drops what is of earlier ones, and tells who asked there."""
        before, self.place = self.place, max(self.place, place)
        self.furthest = self.place[0] + self.window
        for when, kind in self.frames:
            if before < when <= self.place:
                self._release(self.frames[when, kind])
        asked = []
        for when, kind in [key for key in self.frames if key[0] < self.place]:
            dropped = self.take(when, kind)
            asked += [(when, sender) for sender in dropped if kind == "ask"]
        return asked

    def _release(self, frames: dict[int, bytes]) -> None:
        """These are no longer ahead of the superstep at hand."""
        for sender, data in frames.items():
            self.held[sender] -= len(data)
