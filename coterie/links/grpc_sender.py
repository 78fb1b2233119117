"""One stream to one peer, kept alive: what is queued is written, what arrived is confirmed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpc

from coterie.links import grpc_setup as setup
from coterie.links.chunks import ARRIVED, WELCOME, split
from coterie.links.keys import NAME, Keys
from coterie.links.link import Traffic
from coterie.links.outbox import Outbox
from coterie.links.roster import PeerEntry, split_address

log = logging.getLogger(__name__)


class _Lost(Exception):
    """The stream to a peer ended."""


@dataclass
class Sender:
    """Writes a peer's outbox to it, over as many connections as that takes."""

    me: int
    to: PeerEntry
    keys: Keys | None
    session: str  # names this process' numbering of frames
    settings: setup.Settings
    traffic: Traffic
    outbox: Outbox
    _nudged: asyncio.Event = field(default_factory=asyncio.Event)
    _said: str = ""
    _shut_out: int = 0  # attempts in a row that met the right certificate and yet failed

    def nudge(self) -> None:
        """The peer shows signs of life: try now instead of at the end of the pause."""
        self._nudged.set()

    async def run(self) -> None:
        """Connect, write, and connect again, until cancelled."""
        clock = asyncio.get_running_loop().time
        pause = self.settings.shortest
        while True:
            began = clock()
            try:
                await self._connect()
            except (_Lost, grpc.aio.AioRpcError, TimeoutError) as error:
                self.outbox.lose()
                await self._say(error)
            if clock() - began > self.settings.longest:
                pause = self.settings.shortest
            await self._rest(pause)
            pause = min(2 * pause, self.settings.longest)

    async def _rest(self, pause: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._nudged.wait()
        self._nudged.clear()

    async def _connect(self) -> None:
        said = ((setup.FROM, str(self.me)), (setup.TO, str(self.to.id)))
        async with setup.channel(self.keys, self.to) as channel:
            call = channel.stream_stream(f"/{setup.SERVICE}/{setup.METHOD}")(
                metadata=(*said, (setup.SESSION, self.session))
            )
            try:
                await self._converse(call)
            finally:
                call.cancel()

    async def _converse(self, call: Any) -> None:
        async with asyncio.timeout(self.settings.answer):
            arrived, limit = WELCOME.unpack(await _read(call, WELCOME.size))
        self.outbox.reach(arrived)
        self._said, self._shut_out = "", 0
        log.info("peer %d at %s is reached", self.to.id, self.to.address)
        await _first(self._write(call, arrived, limit), self._confirm(call))

    async def _write(self, call: Any, number: int, limit: int) -> None:
        while True:
            number, frame = await self.outbox.after(number)
            if len(frame) > limit:
                log.warning("peer %d takes no frame of %d bytes", self.to.id, len(frame))
                self.outbox.remove(number)
                continue
            self.traffic.sent += len(frame)  # what breaks off has cost its bytes all the same
            for chunk in split(number, frame, self.settings.chunk):
                await _write(call, chunk)

    async def _confirm(self, call: Any) -> None:
        while True:
            self.outbox.confirm(*ARRIVED.unpack(await _read(call, ARRIVED.size)))

    async def _say(self, error: Exception) -> None:
        """Log why a peer is not reached, once for each reason."""
        level, reason = await self._explain(error)
        if reason != self._said:
            log.log(level, "peer %d at %s is lost: %s", self.to.id, self.to.address, reason)
        self._said = reason

    async def _explain(self, error: Exception) -> tuple[int, str]:
        """Peers come and go; a certificate that does not fit needs somebody to look at it."""
        seen = await _shown_fingerprint(self.to) if self.keys and _broke_off(error) else None
        self._shut_out = self._shut_out + 1 if seen == self.to.fingerprint else 0
        if self.keys and self._shut_out > 1:
            own = self.keys.fingerprint
            return logging.WARNING, f"it refuses us; does its list hold our certificate {own}?"
        if seen and seen != self.to.fingerprint:
            return logging.WARNING, f"refused, it shows the certificate {seen}, which is not listed"
        return logging.INFO, _reason(error)


def _broke_off(error: Exception) -> bool:
    """Whether somebody was there but no call came about, as when a handshake fails."""
    if not isinstance(error, grpc.aio.AioRpcError) or error.code() != grpc.StatusCode.UNAVAILABLE:
        return False
    return "Failed to connect" not in (error.details() or "")  # nobody was there at all


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


async def _read(call: Any, size: int) -> bytes:
    message = await call.read()
    if message is grpc.aio.EOF:
        raise _Lost(f"it ended the stream ({(await call.code()).name}: {await call.details()})")
    if len(message) != size:
        raise _Lost(f"it answered with {len(message)} bytes instead of {size}")
    return bytes(message)


async def _write(call: Any, chunk: bytes) -> None:
    try:
        await call.write(chunk)
    except asyncio.InvalidStateError:  # the peer has ended the call
        raise _Lost(f"it ended the stream ({(await call.code()).name})") from None


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Do several things at once until one of them fails; raises what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        log.debug("a stream ended: %s", ended)
    for task in done:
        task.result()


async def _shown_fingerprint(peer: PeerEntry) -> str | None:
    """The certificate that is shown at a peer's address: only to say it, never to trust it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = split_address(peer.address)
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=NAME)
    except (OSError, TimeoutError):
        return None
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return hashlib.sha256(shown).hexdigest() if shown else None
