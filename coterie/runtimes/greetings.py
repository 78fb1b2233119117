"""The numbers in greetings: which process a peer is, whether it has begun, what it can resume."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from coterie.core.messages import Rows
from coterie.links import wire
from coterie.links.wire import Header, WireError

GREETINGS = ("hello", "welcome")  # the kinds of frames
ROUNDS = 8  # that a welcome names at most


@dataclass(frozen=True)
class Welcome:
    """The answer to a hello."""

    life: int  # the number in the hello
    begun: bool  # whether the run has
    rounds: tuple[int, ...]  # that can be resumed, ascending


def hello_rows(life: int) -> Rows:
    """What a hello carries: the number that the process of a peer drew when it started."""
    return {"life": torch.tensor([life])}


def welcome_rows(said: Welcome) -> Rows:
    """What a welcome carries."""
    rounds = torch.tensor(said.rounds, dtype=torch.int64)
    return {"life": torch.tensor([said.life, int(said.begun)]), "rounds": rounds}


def read_hello(header: Header, data: bytes, limits: wire.Limits) -> int:
    """The number in a hello; WireError where it is none."""
    (life,) = _numbers(header, data, limits, {"life": (1, 1)})["life"]
    if life == 0:
        raise WireError("a malformed 'hello'")
    return life


def read_welcome(header: Header, data: bytes, limits: wire.Limits) -> Welcome:
    """What a welcome says; WireError where it is none."""
    said = _numbers(header, data, limits, {"life": (2, 2), "rounds": (0, ROUNDS)})
    return Welcome(said["life"][0], bool(said["life"][1]), tuple(sorted(said["rounds"])))


def _numbers(
    header: Header, data: bytes, limits: wire.Limits, sizes: dict[str, tuple[int, int]]
) -> dict[str, list[int]]:
    """The numbers in a control frame: these names, each with so many, at least and at most."""
    found = {name: (dtype, len(shape)) for name, dtype, shape in header.schema}
    if found != dict.fromkeys(sizes, ("int64", 1)):
        raise WireError(f"a malformed {header.kind!r}")
    for name, _, (count,) in header.schema:
        if not sizes[name][0] <= count <= sizes[name][1]:
            raise WireError(f"a malformed {header.kind!r}")
    return {name: row.tolist() for name, row in wire.decode(data, limits).rows.items()}
