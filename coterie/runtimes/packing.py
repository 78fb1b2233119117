"""From a message to frames, and from the frames that came to an inbox: nothing unchecked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

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
from coterie.links import wire
from coterie.links.wire import WireError
from coterie.runtimes.lockstep import merge
from coterie.runtimes.roll import Place

Shape = dict[str, tuple[str, tuple[int, ...]]]  # name -> type, sizes after the first axis


def pack(message: Message, nodes: Nodes, run: bytes, place: Place) -> bytes | None:
    """The frame that carries a message's rows; None where there are none."""
    heard = outgoing(message, nodes.key)
    if not heard.rows or not len(heard.key):
        return None
    kind = "offer" if isinstance(message, Fetch) else "send"
    return wire.encode(wire.Frame(run, *place, int(nodes.key[0]), kind, heard.rows))


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
    rows: dict[int, dict[str, Tensor]] = {}
    faults: dict[int, str] = {}
    for sender, data in letters.items():
        try:
            rows[sender] = _checked_rows(wire.decode(data, limits))
        except WireError as error:
            faults[sender] = str(error)
    expected = _expected(message, list(rows.values()))
    single = isinstance(message, Fetch) or (isinstance(message, Send) and message.sender is None)
    for sender in list(rows):
        if fault := _misfit(rows[sender], expected, single):
            faults[sender] = fault
            del rows[sender]
    parts = [_heard(sender, found, nodes.device) for sender, found in sorted(rows.items())]
    return deliver(message, nodes.key, merge(parts), nodes.n), faults


def _checked_rows(frame: wire.Frame) -> dict[str, Tensor]:
    rows = dict(frame.rows)
    if any(not row.ndim for row in rows.values()):
        raise WireError("a tensor without a first axis")
    if len({len(row) for row in rows.values()}) != 1:
        raise WireError("tensors of different lengths, or none")
    for name, row in rows.items():
        if row.is_floating_point() and not bool(row.isfinite().all()):
            raise WireError(f"{name!r:.40} holds values that are not finite")
    return rows


def _shape(rows: Mapping[str, Tensor]) -> Shape:
    return {name: (str(row.dtype), tuple(row.shape[1:])) for name, row in rows.items()}


def _expected(message: Message, came: list[dict[str, Tensor]]) -> Shape | None:
    """What rows have to look like; a listener that does not say it takes what most peers sent."""
    rows = message.expect if isinstance(message, Listen) else message.rows
    if rows or not came:
        return _shape(rows)
    shapes = [_shape(found) for found in came]
    common = Counter(repr(sorted(shape.items())) for shape in shapes).most_common(1)[0][0]
    return next(shape for shape in shapes if repr(sorted(shape.items())) == common)


def _misfit(rows: dict[str, Tensor], expected: Shape | None, single: bool) -> str | None:
    """Why rows are not what the algorithm sends at this point; None where they are."""
    found = _shape(rows)
    if found != expected:
        return f"rows {found!r:.200} instead of {expected!r:.200}"
    count = len(next(iter(rows.values())))
    return f"{count} rows instead of one" if single and count != 1 else None


def _heard(sender: int, rows: dict[str, Tensor], device: torch.device) -> Heard:
    count = len(next(iter(rows.values())))
    return Heard({n: row.to(device) for n, row in rows.items()}, torch.full((count,), sender))
