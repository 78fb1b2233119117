"""A link through an MQTT broker; large frames go through a store.

    coterie/<run>/to/<id>/from/<id>      one topic per pair of peers, for the broker's ACL

The broker is trusted with nothing but carrying: notes are signed (`notes`), order and loss are
handled end to end (`lane`), and the broker keeps no state for us: sessions are clean, retained
messages are neither made nor read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coterie.errors import InputError
from coterie.links.broker import Bounds, Broker, refusal
from coterie.links.ending import end
from coterie.links.lane import Intake, Lane, Outbox, Parcel
from coterie.links.link import Link, Receive, Traffic
from coterie.links.notes import Identity, Note, NoteError, Route, Seal, decode, encode, plain
from coterie.links.store import Store, Stored, StoreError

try:
    import aiomqtt
except ImportError:
    raise InputError("this link needs aiomqtt: pip install 'coterie[peer]'") from None

_LOG = logging.getLogger(__name__)
_TICK = 0.2  # seconds between looks at who has not answered
_SWEEP = 10.0  # seconds between looks at what can leave the store
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0  # seconds between attempts to connect


@dataclass(frozen=True)
class Settings:
    """Bounds of a link through a broker."""

    inline: int = 64 << 10  # bytes; larger frames go through the store
    largest: int = (1 << 30) + (1 << 20)  # bytes of a frame, at most
    queue: int = 32  # frames held for a peer
    window: int = 8  # frames on the way to a peer
    inflight: int = 20  # messages that the broker has not confirmed
    patience: float = 10.0  # seconds until a peer that leaves frames unanswered is unreachable
    start: float = 30.0  # seconds to wait for the broker at the beginning
    fetch: float = 10.0  # seconds to wait for an object of the store
    close: float = 5.0  # seconds for what is queued at the end

    @property
    def accepted(self) -> int:
        """Bytes of a message that is taken, at most: peers may have other bounds than we."""
        return max(1 << 20, self.inline) + (64 << 10)


@dataclass
class _Peer:
    """A peer's lane, and what its tasks wait for."""

    lane: Lane
    wake: asyncio.Event = field(default_factory=asyncio.Event)  # something may be due
    room: asyncio.Event = field(default_factory=asyncio.Event)  # the outbox may have room
    mail: asyncio.Event = field(default_factory=asyncio.Event)  # something may have arrived
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # senders keep their order


class MqttLink(Link):
    """The way to all peers through one broker."""

    def __init__(
        self,
        me: int,
        run: bytes,
        peers: Mapping[int, str],
        broker: Broker,
        identity: Identity | None = None,
        store: Store | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`peers` maps ids to fingerprints of certificates (anything without an identity)."""
        _check(broker, identity, peers.get(me, ""))
        self.traffic = Traffic()
        self.settings = settings or Settings()
        self._me, self._run, self._broker, self._store = me, run, broker, store
        self._seal = Seal(identity, peers)
        self._session = os.urandom(16)
        self._peers = {peer: self._lane() for peer in peers if peer != me}
        self._client: aiomqtt.Client | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._last: tuple[bytes, Parcel] | None = None  # one frame goes to many peers
        self._packing = asyncio.Lock()
        self._refused: set[str] = set()
        self._trouble: object = "it does not answer"

    async def open(self, receive: Receive) -> None:
        """Connect to the broker, subscribe, and greet everybody."""
        if self._seal.identity is None:
            _LOG.warning("no keys: peers are not authenticated; the broker is on this machine")
        if self._store is not None:
            await self._store.open()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._stay_connected(ready), "connection")
        self._spawn(self._tick(), "ticks")
        if self._store is not None:
            self._spawn(self._sweep(self._store), "store")
        for number, peer in self._peers.items():
            self._spawn(self._deliver(number, peer, receive), f"from {number}")
        try:
            async with asyncio.timeout(self.settings.start):
                await ready
        except TimeoutError:
            await self._stop()
            where = f"{self._broker.host}:{self._broker.port}"
            raise InputError(
                f"no broker at {where} after {self.settings.start:.0f} s: {self._trouble}"
            ) from None
        except BaseException:
            await self._stop()
            raise

    async def send(self, to: int, frame: bytes) -> None:
        """Queue a frame for a peer; large ones are in the store before this returns."""
        if to not in self._peers:
            raise InputError(f"peer {to} is not known here; known: {sorted(self._peers)}")
        peer = self._peers[to]
        async with peer.turn:
            parcel = await self._pack(frame)
            if parcel is None:
                return
            while peer.lane.outbox.full and self._reachable(peer):
                peer.room.clear()
                await peer.room.wait()
            if peer.lane.outbox.put(parcel):
                _LOG.debug("peer %d does not answer: its oldest frame is dropped", to)
        peer.wake.set()

    async def close(self) -> None:
        """Wait a little for what reachable peers have not confirmed, say bye, and disconnect."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.close):
                for peer in self._peers.values():
                    while peer.lane.outbox.held and peer.lane.met and self._reachable(peer):
                        peer.room.clear()
                        await peer.room.wait()
        with contextlib.suppress(TimeoutError, aiomqtt.MqttError):
            async with asyncio.timeout(self.settings.close):
                await self._leave()
        await self._stop()

    def _lane(self) -> _Peer:
        settings = self.settings
        outbox = Outbox(settings.queue, settings.window)
        return _Peer(Lane(self._session, outbox, Intake(2 * settings.window)))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"mqtt {self._me}: {name}"))

    async def _stop(self) -> None:
        if not await end(self._tasks, self.settings.close):
            _LOG.warning("a connection to the broker does not end, and is left behind")
        self._tasks.clear()
        if self._store is not None:
            await self._store.close()

    def _reachable(self, peer: _Peer) -> bool:
        return peer.lane.reachable(_now(), self.settings.patience)

    # the way out

    async def _pack(self, frame: bytes) -> Parcel | None:
        """A frame as a parcel; None where the store does not take it."""
        async with self._packing:
            if self._last is not None and self._last[0] is frame:
                return self._last[1]
            if len(frame) <= self.settings.inline:
                return Parcel(hashlib.sha256(frame).digest(), len(frame), body=frame)
            parcel = await self._upload(frame)
            self._last = None if parcel is None else (frame, parcel)
            return parcel

    async def _upload(self, frame: bytes) -> Parcel | None:
        if self._store is None:
            raise InputError(
                f"a frame of {len(frame)} bytes does not go through the broker (at most"
                f" {self.settings.inline}); name a store that all peers can reach"
            )
        try:
            stored, fresh = await self._store.put(frame)
        except StoreError as error:
            _LOG.warning("a frame of %d bytes is lost: %s", len(frame), error)
            return None
        self.traffic.uploaded += len(frame) if fresh else 0
        return Parcel(stored.digest, stored.size, stored.url)

    async def _speak(self, client: aiomqtt.Client, number: int, peer: _Peer) -> None:
        while True:
            peer.wake.clear()
            counted = peer.lane.outbox.reached
            while note := peer.lane.next(_now()):
                if note.kind == "frame" and note.sequence > counted:
                    self.traffic.sent += note.size
                counted = peer.lane.outbox.reached
                await self._publish(client, number, note)
            await peer.wake.wait()

    async def _publish(self, client: aiomqtt.Client, number: int, note: Note) -> None:
        identity = self._seal.identity
        if note.kind == "hello" and identity is not None:
            note = replace(note, body=identity.certificate)
        topic = f"coterie/{self._run.hex()}/to/{number}/from/{self._me}"
        payload = encode(note, Route(self._run, self._me, number), self._seal)
        await client.publish(topic, payload, qos=1)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # wait_for of Python 3.11, inside the client, forgets a cancellation that comes
            # together with its result
            raise asyncio.CancelledError

    async def _leave(self) -> None:
        if self._client is None:
            return
        for number, peer in self._peers.items():
            if note := peer.lane.bye():
                await self._publish(self._client, number, note)

    # the way in

    def _hear(self, message: aiomqtt.Message) -> None:
        """Take in what the broker carried here, unless something is wrong with it."""
        found = re.fullmatch(r".*/from/(-?[0-9]{1,9})", message.topic.value)
        number = int(found[1]) if found else None
        if message.retain or number not in self._peers or not isinstance(message.payload, bytes):
            self._refuse(f"{message.topic.value!r:.120}: retained, or from nobody we know")
            return
        try:
            route = Route(self._run, number, self._me)
            note = decode(message.payload, route, self._seal, self.settings.accepted)
        except NoteError as error:
            self._refuse(f"a message under the name of peer {number} is refused: {error}")
            return
        self._take(self._peers[number], note)

    def _take(self, peer: _Peer, note: Note) -> None:
        if note.size > self.settings.largest:
            self._refuse(f"a frame of {note.size} bytes is refused: larger than any should be")
            return
        peer.lane.take(note, _now())
        for event in (peer.wake, peer.room, peer.mail):
            event.set()

    def _refuse(self, why: str) -> None:
        """Say it once: who floods us shall not flood the log."""
        level = logging.DEBUG if why in self._refused else logging.WARNING
        if len(self._refused) < 1000:
            self._refused.add(why)
        _LOG.log(level, "%s", why)

    async def _deliver(self, number: int, peer: _Peer, receive: Receive) -> None:
        intake = peer.lane.intake
        while True:
            peer.mail.clear()
            while intake.waiting:
                session, note = intake.waiting[0]
                await self._hand_over(number, note, receive)
                intake.waiting.popleft()
                peer.lane.done(session, note.sequence)
                peer.wake.set()
            await peer.mail.wait()

    async def _hand_over(self, number: int, note: Note, receive: Receive) -> None:
        try:
            frame = note.body if not note.url else await self._download(note)
        except StoreError as error:
            _LOG.warning("a frame of peer %d is lost: %s", number, error)
            return
        self.traffic.received += len(frame)
        try:
            await receive(number, frame)
        except Exception:  # the frames after this one must still arrive
            _LOG.exception("a frame of peer %d could not be handled", number)

    async def _download(self, note: Note) -> bytes:
        if self._store is None:
            raise StoreError(f"it lies in {note.url!r:.200}, and there is no store here")
        stored = Stored(note.url, note.digest, note.size)
        frame = await self._store.get(stored, self.settings.fetch)
        self.traffic.downloaded += len(frame)
        return frame

    # the connection

    async def _stay_connected(self, ready: asyncio.Future[None]) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                async with self._broker.connect(*self._terms()) as client:
                    pause = _FIRST_PAUSE
                    if not ready.done():
                        ready.set_result(None)
                    await self._talk(client)
            except Exception as broken:  # whatever it was, the next connection may hold
                error = _first(broken)
                known = refusal(error, self._broker)
                if not ready.done() and known is not None:
                    ready.set_exception(known)
                    return
                self._trouble = error
                _LOG.warning("no connection to the broker, again in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def _terms(self) -> tuple[str, str, Bounds]:
        run, session, settings = self._run.hex(), self._session.hex(), self.settings
        queue = max(256, 2 * settings.window * len(self._peers))
        bounds = Bounds(settings.accepted + 4096, queue, settings.inflight)
        name = f"coterie-{run[:8]}-{self._me}-{session[:8]}"
        return name, f"coterie/{run}/to/{self._me}/from/+", bounds

    async def _talk(self, client: aiomqtt.Client) -> None:
        self._client = client
        for peer in self._peers.values():
            peer.lane.reconnected(_now())
        try:
            async with asyncio.TaskGroup() as tasks:  # the first that fails ends them all
                tasks.create_task(self._listen(client))
                for number, peer in self._peers.items():
                    tasks.create_task(self._speak(client, number, peer))
        finally:
            self._client = None

    async def _listen(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            self._hear(message)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            for peer in self._peers.values():
                if peer.lane.remind(_now()):
                    peer.wake.set()
                peer.room.set()  # who waits there looks again whether the peer is reachable

    async def _sweep(self, store: Store) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            held = {parcel.url for peer in self._peers.values() for parcel in peer.lane.outbox.held}
            await store.sweep(held)


def _first(error: Exception) -> Exception:
    """What went wrong, out of the group that a TaskGroup makes of it."""
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


def _check(broker: Broker, identity: Identity | None, pin: str) -> None:
    """Nothing leaves this machine unsigned or in plain text, nor with a key nobody expects."""
    if identity is not None and pin and identity.fingerprint != plain(pin):
        raise InputError(
            f"the others expect a certificate with fingerprint {plain(pin)} from this peer; the one"
            f" here has {identity.fingerprint}"
        )
    if broker.loopback or (identity is not None and broker.tls is not None):
        return
    raise InputError(
        f"the broker {broker.host} is on another machine: give the peer keys (coterie keys new)"
        " and reach the broker over TLS (mqtts://)"
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
