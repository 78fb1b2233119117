"""Rows that a peer keeps for those who ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from coterie.links.wire import WireError
from coterie.runtimes.roll import Place


@dataclass
class _Offer:
    frame: bytes
    answered: set[int] = field(default_factory=set)


class Offers:
    """Frames by the place at which they are offered; everybody gets each of them once."""

    def __init__(self) -> None:
        self._offers: dict[Place, _Offer] = {}

    def __iter__(self) -> Iterator[Place]:
        return iter(self._offers)

    @property
    def newest(self) -> Place:
        """The last place of an offer; before all places where there is none."""
        return max(self._offers, default=(-1, 0))

    def keep(self, place: Place, frame: bytes) -> None:
        """Offer a frame at a place."""
        self._offers[place] = _Offer(frame)

    def take(self, asker: int, place: Place) -> bytes | None:
        """What is offered at a place, None: nothing; WireError for who had it already."""
        offer = self._offers.get(place)
        if offer is None:
            return None
        if asker in offer.answered:
            raise WireError("a second 'ask' of one superstep")
        offer.answered.add(asker)
        return offer.frame

    def release(self, over: Callable[[Place], bool]) -> None:
        """Drop offers that nobody will ask for any more; the newest is for who comes late."""
        for place in sorted(self._offers)[:-1]:
            if over(place):
                del self._offers[place]
