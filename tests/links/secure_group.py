"""Groups of members and a requester, all in one process, and somebody to carry their letters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch

from coterie.core.fixed_point import MODULUS, encode, exponents, scale_of
from coterie.links import keys
from coterie.links.collector import Collector
from coterie.links.letters import Identity, Session
from coterie.links.secure import Member, Register

REQUESTER = 7
RUN = bytes(range(16))
PHASES = ("request", "keys", "shares", "survivors", "unmask")


@cache
def long_term(peer: int) -> keys.Keys:
    """The key of a peer, made once for all tests."""
    return keys.make(f"peer{peer}")


@cache
def identity(me: int) -> Identity:
    """A peer that knows the certificates of all others."""
    certificates = {peer: long_term(peer).certificate for peer in range(REQUESTER + 1)}
    return Identity(me, long_term(me).key, certificates)


def session(
    group: tuple[int, ...] = (0, 1, 2),
    threshold: int = 2,
    parts: tuple[int, ...] = (50, 1),
    t: int = 0,
    nonce: bytes = bytes(16),
) -> Session:
    return Session(RUN, t, 0, REQUESTER, group, threshold, parts, nonce)


def vectors(wanted: Session, spread: float = 1.0) -> dict[int, list[np.ndarray]]:
    """A random vector for each member."""
    random = np.random.default_rng(5)
    return {
        peer: [spread * random.normal(size=size) for size in wanted.parts] for peer in wanted.group
    }


def members(wanted: Session, spread: float = 1.0) -> dict[int, Member]:
    made = vectors(wanted, spread)
    return {peer: Member(identity(peer), Register(), made[peer]) for peer in wanted.group}


def carry(
    collector: Collector,
    group: Mapping[int, Member],
    drop: Mapping[int, str] | None = None,
) -> None:
    """Run a session to its end; member m is gone from the phase drop[m] on."""
    letters, gone = collector.begin(), set()
    for phase in PHASES:
        gone |= {peer for peer, last in (drop or {}).items() if last == phase}
        for peer in sorted(letters.keys() - gone):
            collector.hear(peer, group[peer].hear(letters[peer]))
        assert collector.waiting == letters.keys() & gone
        letters = collector.advance()


def plain(wanted, alive, spread=1.0):
    """The fixed-point sum of some members' vectors, without any mask: uint32 [words]."""
    made = vectors(wanted, spread)
    terms, sums = torch.tensor(len(wanted.group)), []
    for part in range(len(wanted.parts)):
        rows = torch.tensor(np.stack([made[peer][part] for peer in wanted.group]))
        scale = scale_of(terms, exponents(rows).amax())
        kept = [wanted.group.index(peer) for peer in alive]
        sums.append(encode(rows[kept], scale).sum(0) % MODULUS)
    return torch.cat(sums).numpy().astype(np.uint32)


def played(wanted, drop=None, spread=1.0):
    collector = Collector(identity(REQUESTER), wanted)
    carry(collector, members(wanted, spread), drop)
    return collector.result


def forged(kind, wanted, body, sender=REQUESTER):
    """A letter as the requester itself would sign it."""
    return identity(sender).write(kind, wanted.id, body).pack()


def started(wanted, until):
    """A collector and members that have answered all phases before this one, and its letters."""
    collector, group = Collector(identity(REQUESTER), wanted), members(wanted)
    letters = collector.begin()
    for _ in PHASES[: PHASES.index(until)]:
        for peer, data in letters.items():
            collector.hear(peer, group[peer].hear(data))
        letters = collector.advance()
    return collector, group, letters
