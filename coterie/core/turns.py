"""A turn of a program: what it yields next, or what it returned; mistakes are told in its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from torch import Tensor

from coterie.core.algorithm import Program
from coterie.core.messages import Fetch, Inbox, Listen, Message, Send
from coterie.errors import InputError


@dataclass(frozen=True)
class Returned:
    """A program has ended."""

    state: Any


def turn(program: Program, inbox: Inbox | None, rows: int) -> Message | Returned:
    """Send a program of a block of `rows` nodes what it heard (None: let it begin)."""
    name = getattr(program, "__name__", "round")
    try:
        message = next(program) if inbox is None else program.send(inbox)
    except StopIteration as stop:
        if not is_dataclass(stop.value):
            raise InputError(
                f"`{name}` of an algorithm returns the next state, a frozen dataclass of tensors, "
                f"and here it returned {_kind(stop.value)}; end it with `return State(...)`"
            ) from None
        return Returned(stop.value)
    fault = _fault(message, rows)
    if fault:
        program.throw(TypeError(fault))  # so that the traceback names the line of the `yield`
    return message


def _fault(message: object, rows: int) -> str:
    """What is wrong with what was yielded; empty: nothing."""
    if not isinstance(message, Send | Fetch | Listen):
        return f"a round yields Send, Fetch or Listen, and here {_kind(message)}"
    if isinstance(message, Listen):
        return ""
    if not isinstance(message.rows, Mapping):
        return f"what is sent is a dict of names and tensors, and here {_kind(message.rows)}"
    own = isinstance(message, Fetch) or message.sender is None
    count = rows if own else len(message.sender)  # type: ignore[arg-type, union-attr]
    for name, part in message.rows.items():
        if not isinstance(part, Tensor):
            return f"{name!r} of what is sent is {_kind(part)}, not a tensor"
        if part.ndim == 0 or len(part) != count:
            had = "no rows" if part.ndim == 0 else f"{len(part)} row{'s' * (len(part) != 1)}"
            whose = f"the block has {rows} nodes" if own else f"`sender` names {count}"
            return f"{name!r} of what is sent has {had}, and {whose}"
    return ""


def _kind(value: object) -> str:
    name = type(value).__name__
    return "nothing" if value is None else f"a{'n' * (name[0] in 'aeiou')} {name}"
