"""What a peer is told before it starts, and what it tells those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from coterie.core.engine import Scores
from coterie.core.lineage import Lineage
from coterie.errors import InputError
from coterie.links import wire
from coterie.links.quorum import MAJORITY, unsafe


@dataclass(frozen=True)
class Plan:
    """What all peers of a run agree on, and how patient this one is."""

    run: bytes  # 16 bytes that name the run
    peers: tuple[int, ...]  # the ids of all peers of the run, this one too
    rounds: int
    deadline: float = 60.0  # seconds a superstep waits for others; also after which silence is away
    window: int = 2  # rounds that a peer may be ahead of the slowest
    patience: float = 600.0  # seconds to wait at the start until all peers are there
    evaluate_every: int = 10  # rounds
    checkpoint_every: int = 10  # rounds
    folder: Path | None = None  # of the checkpoints; None: there are none
    ahead: int = 1 << 30  # bytes of frames that may wait for their superstep
    limits: wire.Limits = field(default_factory=wire.Limits)
    threshold: float = MAJORITY  # share of its members that a secure sum needs; 1: all

    def __post_init__(self) -> None:
        least = {"rounds": 0, "window": 1, "evaluate_every": 1, "checkpoint_every": 1, "ahead": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"{name} must be at least {bound}, got {getattr(self, name)}")
        if not self.deadline > 0:
            raise InputError(f"deadline must be above 0 seconds, got {self.deadline}")
        if not MAJORITY <= self.threshold <= 1:
            raise InputError(unsafe(self.threshold))


@dataclass(frozen=True)
class Picked:
    """Whom a peer picked in a round."""

    peers: tuple[int, ...]
    competitive: int | None  # groups from which they were drawn, where the algorithm has groups

    @classmethod
    def of(cls, state: Any) -> Picked | None:
        """The picks in a state of one row; None where it has no `picked`."""
        picked, left = getattr(state, "picked", None), getattr(state, "competitive", None)
        if picked is None:
            return None
        peers = tuple(peer for peer in picked.flatten().tolist() if peer >= 0)
        return cls(peers, None if left is None else int(left.flatten()[0]))


@dataclass(frozen=True)
class Report:
    """What one peer says of itself after a round."""

    round: int  # rounds done
    bytes: int  # sent so far, as the simulation counts them
    control: int  # bytes sent so far to keep step; no part of the algorithm's traffic
    choice: int | None  # the head it chose, where the algorithm chooses
    heard: int  # peers heard in this round
    missed: tuple[int, ...]  # peers for whom a wait ran out in this round
    scores: Scores | None  # of the personal model on the own test data, where it was evaluated
    phase: str = "round"  # "final": after the algorithm's last program
    lineage: Lineage | None = None  # models that the round brought forth, where there is a family
    picked: Picked | None = None  # where the algorithm picks peers
    notes: dict[str, Tensor] = field(default_factory=dict)  # what a server wants recorded


@dataclass
class Watch:
    """Callbacks of somebody who watches a peer; the default watches nothing.

    They are called from the event loop, and what they raise ends the peer.
    """

    begin: Callable[[int, dict[str, Any]], None] = lambda t, note: None  # first round, its note
    round: Callable[[Report], None] = lambda report: None
    skip: Callable[[int, int], None] = lambda t, to: None  # from a round to a later one
    note: Callable[[], dict[str, Any]] = dict  # after every round: plain values for a checkpoint


@dataclass(frozen=True)
class Whereabouts:
    """What a peer knows about another."""

    round: int | None  # the last it announced; None: it has not begun
    present: bool
    rejected: int  # frames of it that were no good


@dataclass(frozen=True)
class Status:
    """A peer at one moment."""

    id: int
    round: int
    superstep: int
    bytes: int
    control: int
    late: int  # frames that came too late
    rejected: int  # frames that were no good
    missing: tuple[int, ...]  # for whom it waits
    others: dict[int, Whereabouts]


@dataclass(frozen=True)
class Outcome:
    """What a peer has when it ends."""

    rounds: int  # done
    finished: bool  # False: it was stopped before the end
    state: Any  # one row
    personal: Tensor | None  # [1, P] the model to deploy; None of a server
    bytes: int
    control: int
