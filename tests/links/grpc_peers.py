"""Links of a few peers on loopback ports of this machine, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from coterie.links import keys
from coterie.links.grpc_link import GrpcLink
from coterie.links.grpc_setup import Settings
from coterie.links.keys import Keys
from coterie.links.ports import reserved_ports
from coterie.links.roster import PeerEntry, Roster
from coterie.links.wire import Limits

LONG = 60.0  # seconds that a test waits at most; reached only when something is broken
SMALL = Limits(header=1000, body=99_000)
BOTH = pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])


@cache
def key_of(name: str) -> Keys:
    """A key by name, made once for all tests."""
    return keys.make(name)


@contextlib.contextmanager
def roster(count: int, tls: bool = True) -> Iterator[Roster]:
    """A list of peers 0, 1, ... on ports that stay reserved for them."""
    with reserved_ports(count) as ports:
        yield Roster(tuple(entry(peer, port, tls) for peer, port in enumerate(ports)))


def entry(peer: int, port: int, tls: bool) -> PeerEntry:
    address = f"127.0.0.1:{port}"
    if not tls:
        return PeerEntry(peer, address)
    key = key_of(f"peer-{peer}")
    return PeerEntry(peer, address, key.fingerprint, key.certificate)


def link(peer: int, known: Roster, **options: Any) -> GrpcLink:
    """The link of one peer, with its key where the list has fingerprints, and short pauses."""
    key = key_of(f"peer-{peer}") if known.secured else None
    plain: dict[str, Any] = {"keys": key, "settings": settings()}
    return GrpcLink(peer, known, **{**plain, **options})


def settings(**changed: Any) -> Settings:
    """Settings under which nothing has to be waited for."""
    plain: dict[str, Any] = {"shortest": 0.02, "longest": 0.2, "grace": LONG, "answer": LONG}
    return Settings(**{**plain, **changed})


@dataclass
class Mailbox:
    """Keeps what arrives, and lets a test wait for it; a closed gate holds up deliveries."""

    got: list[tuple[int, bytes]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    began: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    async def receive(self, sender: int, frame: bytes) -> None:
        self.began += 1
        await self.gate.wait()
        self.got.append((sender, frame))

    async def hold(self, count: int) -> list[tuple[int, bytes]]:
        await until(lambda: len(self.got) >= count)
        return self.got


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fails after a time that is long on any machine."""
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def opened(*links: GrpcLink) -> AsyncIterator[list[Mailbox]]:
    """Open links, each with a mailbox, and close them at the end."""
    boxes = [Mailbox() for _ in links]
    try:
        for one, box in zip(links, boxes, strict=True):
            await one.open(box.receive)
        yield boxes
    finally:
        for box in boxes:
            box.gate.set()
        await asyncio.gather(*(one.close() for one in links))


def run(work: Any) -> Any:
    """Run a test's coroutine within a bound of time."""
    return asyncio.run(asyncio.wait_for(work, 3 * LONG))


def begin(channel: Any, sender: object = 0, to: object = 1, session: str = "other") -> Any:
    """A stream in somebody's name, without a link."""
    said = (("coterie-from", str(sender)), ("coterie-to", str(to)), ("coterie-session", session))
    return channel.stream_stream("/coterie.Link/Frames")(metadata=said)


async def send_all(one: GrpcLink, frames: list[bytes]) -> None:
    """Send frames to peer 1."""
    for frame in frames:
        await one.send(1, frame)
