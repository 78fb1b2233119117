"""A turn of a program: what it yields next, or what it returned; mistakes are told in its words."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
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
        if not is_dataclass(stop.value) or isinstance(stop.value, type):
            raise InputError(
                f"`{name}` of an algorithm returns the next state, a frozen dataclass of tensors, "
                f"and here ({_place(program)}) it returned {kind_of(stop.value)}; end it with "
                "`return State(...)`"
            ) from None
        if fault := _misfit(stop.value, rows):
            raise InputError(f"`{name}` of an algorithm ({_place(program)}): {fault}") from None
        return Returned(stop.value)
    if fault := _fault(message, rows):
        with suppress(StopIteration):
            program.throw(TypeError(fault))  # so that the traceback names the line of the `yield`
        raise InputError(f"{fault} ({_place(program)})")  # caught there
    return message


def _misfit(state: Any, rows: int) -> str:
    """Which tensor of a state has not a row for each node; empty: none."""
    for part in fields(state):
        value = getattr(state, part.name)
        if not isinstance(value, Tensor) or part.metadata.get("axis") == "replica":
            continue
        if value.ndim == 0 or len(value) != rows:
            shape = list(value.shape)
            return f"{part.name!r} of the state has the shape {shape}, and the block {rows} nodes"
    return ""


def _fault(message: object, rows: int) -> str:
    """What is wrong with what was yielded; empty: nothing."""
    if not isinstance(message, Send | Fetch | Listen):
        return f"a round yields Send, Fetch or Listen, and here {kind_of(message)}"
    if isinstance(message, Listen):
        return ""
    if not isinstance(message.rows, Mapping):
        return f"what is sent is a dict of names and tensors, and here {kind_of(message.rows)}"
    sender = None if isinstance(message, Fetch) else message.sender
    if sender is not None and not _are_rows(sender, rows):
        return f"`sender` is a tensor of rows of the block, 0 to {rows - 1}, and here {sender!r}"
    count = rows if sender is None else len(sender)
    for name, part in message.rows.items():
        if not isinstance(part, Tensor):
            return f"{name!r} of what is sent is {kind_of(part)}, not a tensor"
        if part.ndim == 0 or len(part) != count:
            had = "no rows" if part.ndim == 0 else f"{len(part)} row{'s' * (len(part) != 1)}"
            whose = f"the block has {rows} nodes" if sender is None else f"`sender` names {count}"
            return f"{name!r} of what is sent has {had}, and {whose}"
    return ""


def _are_rows(sender: object, rows: int) -> bool:
    if not isinstance(sender, Tensor) or sender.ndim != 1 or sender.is_floating_point():
        return False
    return sender.is_cuda or bool(((sender >= 0) & (sender < rows)).all())  # no wait for a GPU


def _place(program: Program) -> str:
    """Where the text of a program begins."""
    code = program.gi_code  # type: ignore[attr-defined]
    return f"{code.co_filename.rpartition('/')[2]}, line {code.co_firstlineno}"


def kind_of(value: object) -> str:
    """What a value is, for a message."""
    if isinstance(value, Tensor):
        return f"a Tensor of the shape {list(value.shape)}"
    name = type(value).__name__
    return "nothing" if value is None else f"a{'n' * (name[0] in 'aeiou')} {name}"
