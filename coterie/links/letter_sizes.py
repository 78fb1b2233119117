"""How many bytes a secure sum sends, without making one: the simulation counts by this.

Letters are msgpack (coterie.links.letters), each in a frame of its own. Their sizes follow from how
many members there are, how long their vector is, and how wide the numbers are that are written in
them; a test compares all of it with the real protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from coterie.links import wire

KEY, DIGEST, SESSION, NONCE = 32, 32, 32, 16  # bytes
SHARE, TAG = 66, 16  # of a share, and what locking it adds
SIGNATURE = 64  # by keys as `coterie keys new` makes them


def secure_sum_bytes(
    place: tuple[int, int],
    requester: int,
    group: Sequence[int],
    threshold: int,
    parts: tuple[int, ...],
) -> tuple[int, list[int]]:
    """What the requester sends to all members together, and what each of them sends to it.

    As if nobody dropped out; `place` is round and superstep, `parts` are words.
    """
    numbers = _whole(place[0]) + _whole(place[1]) + _whole(requester) + _whole(threshold)
    widths = tuple(sorted(Counter(map(_whole, group)).items()))
    asked, answered = _traffic(_Sizes(numbers, _whole(requester), widths, parts))
    return asked, [answered[_whole(member)] for member in group]


@dataclass(frozen=True)
class _Sizes:
    """The bodies of all letters of a session."""

    numbers: int  # bytes of round, superstep, requester and threshold
    requester: int  # bytes of its id
    widths: tuple[tuple[int, int], ...]  # bytes of an id, and how many members have such an id
    parts: tuple[int, ...]

    @property
    def members(self) -> int:
        return sum(count for _, count in self.widths)

    def every(self, size: Callable[[int], int], but: int = 0) -> int:
        """A list with an entry for each member, or for all `but` one whose id is so wide."""
        there = sum((count - (width == but)) * size(width) for width, count in self.widths)
        return _list(self.members - (but > 0)) + there

    def ids(self) -> int:
        return self.every(lambda width: width)

    def session(self) -> int:
        parts = _list(len(self.parts)) + sum(map(_whole, self.parts))
        return _list(8) + 2 * _bytes(NONCE) + self.numbers + self.ids() + parts

    def key(self) -> int:
        clips = _list(len(self.parts)) + len(self.parts)  # exponents below 128
        return _list(3) + 2 * _bytes(KEY) + clips

    def share(self, sender: int, receiver: int) -> int:
        body = _list(3) + receiver + _bytes(DIGEST) + _bytes(2 * SHARE + TAG)
        return _bytes(_letter("share", sender, body))

    def agree(self) -> int:
        return _list(3) + _bytes(DIGEST) + 2 * self.ids()

    def asks(self, to: int) -> dict[str, int]:
        """What the requester writes to a member whose id is so wide."""
        return {
            "request": self.session(),
            "keys": self.every(lambda w: _bytes(_letter("key", w, self.key()))),
            "shares": self.every(lambda w: self.share(w, to), but=to),
            "survivors": self.ids(),
            "unmask": self.every(lambda w: _bytes(_letter("agree", w, self.agree()))),
        }

    def answers(self, by: int) -> dict[str, int]:
        """What such a member writes."""
        return {
            "key": self.key(),
            "shared": self.every(lambda w: self.share(by, w), but=by),
            "masked": 4 * sum(self.parts),
            "agree": self.agree(),
            "open": self.every(lambda w: _list(3) + w + 1 + _bytes(SHARE)),
        }


@lru_cache(maxsize=256)
def _traffic(sizes: _Sizes) -> tuple[int, dict[int, int]]:
    """What the requester sends, and by the width of its id what a member sends."""
    asked = sum(count * _frames(sizes.requester, sizes.asks(w)) for w, count in sizes.widths)
    return asked, {w: _frames(w, sizes.answers(w)) for w, _ in sizes.widths}


def _frames(sender: int, bodies: dict[str, int]) -> int:
    letters = [_letter(kind, sender, body) for kind, body in bodies.items()]
    return sum(wire.frame_size("seal", (("letter", "uint8", (size,)),)) for size in letters)


def _letter(kind: str, sender: int, body: int) -> int:
    return _list(5) + 1 + len(kind) + _bytes(SESSION) + sender + _bytes(body) + _bytes(SIGNATURE)


# as msgpack writes them


def _whole(number: int) -> int:
    if -32 <= number < 1 << 7:
        return 1
    return next(1 + size for size in (1, 2, 4, 8) if number < 1 << 8 * size)


def _bytes(count: int) -> int:
    return count + next(1 + size for size in (1, 2, 4) if count < 1 << 8 * size)


def _list(count: int) -> int:
    return 1 if count < 16 else 3 if count < 1 << 16 else 5
