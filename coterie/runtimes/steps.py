"""One step of a program: what it yields next, packed for the way, or what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coterie.core.algorithm import Program
from coterie.core.messages import Inbox, Message
from coterie.core.nodes import Nodes
from coterie.runtimes.packing import pack
from coterie.runtimes.roll import Place


@dataclass(frozen=True)
class Said:
    """What a program yielded, and the frame that carries its rows."""

    message: Message
    frame: bytes | None


@dataclass(frozen=True)
class Result:
    """What a program returned."""

    value: Any


def advance(
    program: Program, inbox: Inbox | None, nodes: Nodes, run: bytes, place: Place
) -> Said | Result:
    """Hand a program its inbox, None at the start, and take what comes out."""
    try:
        message = next(program) if inbox is None else program.send(inbox)
    except StopIteration as stop:
        return Result(stop.value)
    return Said(message, pack(message, nodes, run, place))
