"""What would leave this machine: the first round, played with nobody there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from coterie.core.algorithm import Program
from coterie.core.messages import Fetch, Heard, Inbox, Listen, Message, deliver, outgoing
from coterie.core.nodes import Nodes
from coterie.core.turns import Returned, turn
from coterie.links import wire
from coterie.peers.choose import SERVER
from coterie.peers.member import Member
from coterie.runtimes.packing import pack, sources, targets
from coterie.runtimes.roles import role_of


@dataclass(frozen=True)
class Leaving:
    """One frame that would go out, and to whom."""

    superstep: int
    schema: wire.Schema  # name, type, shape of all that is in it
    size: int  # bytes of the frame
    to: tuple[int, ...]
    on_request: bool = False  # to whoever asks in this superstep, nobody else

    @property
    def total(self) -> int:
        """Bytes of all its copies."""
        return self.size * len(self.to)


@dataclass(frozen=True)
class Preview:
    """The frames of one round, and of one evaluation."""

    round: int
    frames: tuple[Leaving, ...]
    shared: tuple[Leaving, ...]  # at an evaluation: a server's state for its clients
    step_size: int  # bytes of the frame that tells another peer where this one is

    @property
    def total(self) -> int:
        """Bytes that leave unasked in the round."""
        return sum(frame.total for frame in self.frames)


def preview(member: Member) -> Preview:
    """The first round in which this member takes part, each peer heard answering with its like."""
    role = role_of(member.part.algorithm, member.nodes)
    state = role.start()
    programs = ((t, role.round(t, state)) for t in range(member.config.experiment.rounds))
    t, program = next((found for found in programs if found[1] is not None), (0, None))
    shared = role.share(t, state)
    return Preview(
        t,
        tuple(_play(program, member, t)) if program else (),
        tuple(_play(shared, member, t)) if shared else (),
        wire.frame_size("at", ()),
    )


def _play(program: Program, member: Member, t: int) -> Iterator[Leaving]:
    nodes, step = member.nodes, 0
    said = turn(program, None, len(nodes))
    while not isinstance(said, Returned):
        yield from _leaving(said, nodes, t, step)
        said = turn(program, _echo(said, nodes), len(nodes))
        step += 1


def _leaving(message: Message, nodes: Nodes, t: int, step: int) -> Iterator[Leaving]:
    if message.sealed:
        yield from _sealed(message, nodes, step)
        return
    frame = pack(message, nodes, bytes(16), (t, step))
    if isinstance(message, Fetch):
        asked = tuple(sources(message, nodes))
        yield Leaving(step, (), wire.frame_size("ask", ()), asked)
    to = tuple(targets(message, nodes))
    if frame is not None and (to or isinstance(message, Fetch)):
        schema = wire.peek(frame, wire.Limits.up_to(len(frame))).schema
        yield Leaving(step, schema, len(frame), to, isinstance(message, Fetch))


def _sealed(message: Message, nodes: Nodes, step: int) -> Iterator[Leaving]:
    """The masked words of the own rows, for each sum they are in; short letters come on top."""
    rows = outgoing(message, nodes.key).rows
    if not isinstance(message, Listen) and rows:
        words = sum(row[:1].numel() for row in rows.values())
        schema: wire.Schema = (("masked", "uint8", (4 * words,)),)
        to = tuple(targets(message, nodes))
        fetched = isinstance(message, Fetch)
        yield Leaving(step, schema, wire.frame_size("seal", schema), to, fetched)


def _echo(message: Message, nodes: Nodes) -> Inbox:
    """Everybody who is to be heard says what this node says, or zeros where it only listens."""
    rows = dict(outgoing(message, nodes.key).rows)
    if isinstance(message, Listen):
        rows = {name: row.new_zeros(1, *row.shape[1:]) for name, row in message.expect.items()}
    heard = sources(message, nodes) if rows else []
    count = len(next(iter(rows.values()))) if rows else 0
    many = {name: torch.cat([row] * len(heard)) for name, row in rows.items()} if heard else {}
    key = torch.tensor(heard, dtype=torch.int64).repeat_interleave(count)
    return deliver(message, nodes.key, Heard(many, key), nodes.n)


def told(shown: Preview, me: int) -> Iterator[str]:
    """The preview in lines for people."""
    who = "the server" if me == SERVER else f"peer {me}"
    yield f"round {shown.round + 1} of {who}, exactly what would leave this machine:"
    for frame in shown.frames:
        names = _names(frame)
        yield f"  superstep {frame.superstep}: {names}, {frame.size} bytes a copy, {_to(frame)}"
    if not shown.frames:
        yield "  nothing"
    peers = len({peer for frame in shown.frames for peer in frame.to})
    messages = sum(len(frame.to) for frame in shown.frames)
    counts = _counted(messages, "message"), _counted(peers, "peer")
    yield f"{counts[0]} and {shown.total} bytes a round, to {counts[1]}"
    if any(name == "masked" for frame in shown.frames for name, _, _ in frame.schema):
        yield "sums are sealed: short letters with keys, locked shares and survivors come on top"
    for frame in shown.shared:
        yield f"at an evaluation: {_names(frame)}, {frame.size} bytes a copy, {_to(frame)}"
    yield (
        f"beside these, {shown.step_size} bytes to each peer now and then: the round and superstep "
        "of this one, and at the start which rounds it can resume"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _names(frame: Leaving) -> str:
    if not frame.schema:
        return "a question (no tensors)"
    return ", ".join(
        f"{name} {dtype}[{', '.join(map(str, shape))}]" for name, dtype, shape in frame.schema
    )


def _to(frame: Leaving) -> str:
    if frame.on_request:
        return "only to peers that ask"
    listed = ", ".join("the server" if peer == SERVER else str(peer) for peer in frame.to)
    return f"to {listed}" if listed else "to nobody"
