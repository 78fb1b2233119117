"""From a message to frames, and from the frames that came to an inbox: nothing unchecked."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from coterie.core.algorithm import Program
from coterie.core.messages import (
    Fetch,
    Heard,
    Inbox,
    Listen,
    Message,
    Send,
    deliver,
    outgoing,
    wanted,
)
from coterie.core.nodes import Nodes
from coterie.core.turns import Returned, turn
from coterie.errors import InputError
from coterie.links import wire
from coterie.links.wire import Schema, WireError
from coterie.runtimes.lockstep import merge
from coterie.runtimes.mailbox import SUPERSTEPS
from coterie.runtimes.roll import Place

SHARING = SUPERSTEPS - 1  # in which a server's state goes to its clients; no training traffic


def asks(message: Message, place: Place) -> bool:
    """Whether rows go to those who ask for them, which late ones may do too, or are pushed."""
    return isinstance(message, Fetch) or place[1] == SHARING


@dataclass(frozen=True)
class Said:
    """What a program yielded, and the frame that carries its rows; None: none, or sealed ones."""

    message: Message
    frame: bytes | None


def advance(
    program: Program, inbox: Inbox | None, nodes: Nodes, run: bytes, place: Place
) -> Said | Returned:
    """The next message of a program, packed, or what it returned."""
    message = turn(program, inbox, len(nodes))
    if isinstance(message, Returned):
        return message
    return Said(message, None if message.sealed else pack(message, nodes, run, place))


def pack(message: Message, nodes: Nodes, run: bytes, place: Place) -> bytes | None:
    """The frame that carries a message's rows; None where there are none."""
    if message.sealed:
        raise not_sealed()
    heard = outgoing(message, nodes.key)
    if not heard.rows or not len(heard.key):
        return None
    kind = "offer" if asks(message, place) else "send"
    return wire.encode(wire.Frame(run, *place, int(nodes.key[0]), kind, heard.rows))


def not_sealed() -> InputError:
    """What to say where sealed rows would leave in the clear."""
    return InputError(
        "secure aggregation needs every peer's key, and sealed models never leave in the clear; "
        "make keys with: coterie keys new, and give all [[peers]] a certificate and fingerprint"
    )


def check_size(frame: bytes | None, limits: wire.Limits) -> None:
    """InputError where the others would refuse a frame, for what it weighs alone."""
    if frame is not None and len(frame) > limits.frame:
        raise InputError(
            f"the algorithm sends {len(frame) / 2**20:.0f} MiB at once, and peers of this run take "
            f"{limits.frame / 2**20:.0f}; set runtime.largest to more MiB for all of them"
        )


def sources(message: Message, nodes: Nodes) -> list[int]:
    """From whom a message wants to hear, each once, ascending."""
    return sorted(set(wanted(message, nodes.key, nodes.n)[0].tolist()))


def targets(message: Message, nodes: Nodes) -> list[int]:
    """To whom the rows of a message go unasked, ascending."""
    if not isinstance(message, Send):
        return []
    graph = message.along
    return sorted(set(graph.target[graph.source == int(nodes.key[0])].tolist()))


def unpack(
    message: Message, nodes: Nodes, letters: Mapping[int, bytes], limits: wire.Limits
) -> tuple[Inbox, dict[int, str]]:
    """The inbox made of the frames of each sender, and why some of them were left out."""
    expected = _expected(message) or _most_common(letters.values(), limits)
    parts: list[Heard] = []
    faults: dict[int, str] = {}
    for sender, data in sorted(letters.items()):
        try:
            parts.append(_heard(sender, wire.decode(data, limits, expected), nodes.device))
        except WireError as error:
            faults[sender] = str(error)
    return deliver(message, nodes.key, merge(parts), nodes.n), faults


def _expected(message: Message) -> Schema:
    """What peers send at this point: the same as this one, or what a listener says it expects."""
    single = isinstance(message, Fetch) or (isinstance(message, Send) and message.sender is None)
    rows = message.expect if isinstance(message, Listen) else message.rows
    return _any_rows(wire.schema_of(rows), 1 if single else wire.ANY)


def _any_rows(schema: Schema, count: int = wire.ANY) -> Schema:
    return tuple((name, dtype, (count, *shape[1:])) for name, dtype, shape in schema)


def _most_common(frames: Iterable[bytes], limits: wire.Limits) -> Schema:
    """What most frames hold: all that a listener knows who did not say what it expects."""
    found: Counter[Schema] = Counter()
    for data in frames:
        with contextlib.suppress(WireError):
            found[tuple(sorted(_any_rows(wire.peek(data, limits).schema)))] += 1
    return found.most_common(1)[0][0] if found else ()


def _heard(sender: int, frame: wire.Frame, device: torch.device) -> Heard:
    wire.finite(frame)
    counts = {len(row) for row in frame.rows.values()}
    if len(counts) != 1:
        raise WireError("tensors of different lengths, or none")
    rows = {name: row.to(device) for name, row in frame.rows.items()}
    return Heard(rows, torch.full((counts.pop(),), sender))
