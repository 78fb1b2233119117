"""Streams from other peers: who sends, what of it is new, and one frame of a peer at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from coterie.links import grpc_setup as setup
from coterie.links.chunks import ARRIVED, WELCOME, Assembler
from coterie.links.keys import fingerprint
from coterie.links.link import Receive, Traffic
from coterie.links.roster import Roster
from coterie.links.wire import WireError

log = logging.getLogger(__name__)
Code = grpc.StatusCode


@dataclass
class _Inbound:
    """What is known about the frames of one peer."""

    session: str = ""
    arrived: int = 0  # number of the last frame of this session that was handed over
    stream: asyncio.Task[Any] | None = None  # the one that may deliver
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def begin(self, session: str) -> None:
        """A new stream takes over: the older one is ended, another session counts anew."""
        if self.stream is not None:
            self.stream.cancel()
        self.stream = asyncio.current_task()
        if session != self.session:
            self.session, self.arrived = session, 0


@dataclass
class Receiver:
    """Hands the frames of all peers to `receive`."""

    me: int
    roster: Roster
    secured: bool
    limit: int  # bytes of a frame
    traffic: Traffic
    receive: Receive
    met: Callable[[int], None]  # told whenever a peer connects
    knocks: setup.Knocks
    _inbound: dict[int, _Inbound] = field(default_factory=dict)
    _streams: set[asyncio.Task[Any]] = field(default_factory=set)
    _deliveries: set[asyncio.Task[None]] = field(default_factory=set)
    _closing: bool = False

    def handler(self) -> Any:
        """What a server needs to know about the method."""
        method = grpc.stream_stream_rpc_method_handler(self._serve)
        return grpc.method_handlers_generic_handler(setup.SERVICE, {setup.METHOD: method})

    async def close(self, timeout: float) -> None:
        """End all streams and stop handing over."""
        self._closing = True
        ending = [*self._streams, *self._deliveries]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=timeout)

    async def _serve(self, _requests: Any, context: Any) -> None:
        self.knocks.proven += 1
        if self._closing:
            await context.abort(Code.UNAVAILABLE, "this peer closes")
        stream = asyncio.current_task()
        assert stream is not None  # gRPC serves every call in a task
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)
        said = dict(context.invocation_metadata())
        try:
            peer = self._identify(said, context)
        except PermissionError as error:
            log.warning("refused a connection from %s: %s", context.peer(), error)
            await context.abort(Code.PERMISSION_DENIED, str(error))
        else:
            inbound = self._inbound.setdefault(peer, _Inbound())
            inbound.begin(str(said.get(setup.SESSION)))
            self.met(peer)
            await self._listen(peer, inbound, context)

    async def _listen(self, peer: int, inbound: _Inbound, context: Any) -> None:
        assembler = Assembler(self.limit)
        try:
            await context.write(WELCOME.pack(inbound.arrived, self.limit))
            while (message := await context.read()) is not grpc.aio.EOF:
                frame = assembler.add(message)
                if frame is not None:
                    await self._hand_over(peer, inbound, assembler.number, frame)
                    await context.write(ARRIVED.pack(assembler.number))
        except WireError as error:
            log.warning("ended the stream of peer %d: %s", peer, error)
            await context.abort(Code.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            if inbound.stream is asyncio.current_task() and not self._closing:
                raise  # the peer is gone
            await context.abort(Code.ABORTED, "this peer closes, or a newer stream took over")

    async def _hand_over(self, peer: int, inbound: _Inbound, number: int, frame: bytes) -> None:
        """Deliver in a task of its own: a frame that came is not lost with its connection."""
        stream = asyncio.current_task()
        delivery = asyncio.create_task(self._deliver(peer, inbound, stream, number, frame))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)
        await asyncio.shield(delivery)

    async def _deliver(
        self, peer: int, inbound: _Inbound, stream: Any, number: int, frame: bytes
    ) -> None:
        async with inbound.turn:
            if stream is not inbound.stream or number <= inbound.arrived:
                return
            inbound.arrived = number
            self.traffic.received += len(frame)
            try:
                await self.receive(peer, frame)
            except Exception:
                log.exception("a frame of peer %d was not taken", peer)

    def _identify(self, said: dict[str, Any], context: Any) -> int:
        """The id of the peer that a connection proves to be."""
        to, claimed = said.get(setup.TO), said.get(setup.FROM)
        if to != str(self.me):
            raise PermissionError(f"it looks for peer {to!r:.20}, this is {self.me}")
        listed = {str(peer): peer for peer in self.roster.ids if peer != self.me}
        if claimed not in listed:
            raise PermissionError(f"peer {claimed!r:.20} is not in the list of peers")
        if self.secured:
            shown = fingerprint(context.auth_context()["x509_pem_cert"][0])
            if shown != self.roster[listed[claimed]].fingerprint:
                raise PermissionError(f"its certificate {shown} is not that of peer {claimed}")
        return listed[claimed]
