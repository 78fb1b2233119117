"""The link over gRPC: mutual TLS between the peers of a list, one stream per direction and peer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

from coterie.errors import InputError
from coterie.links import grpc_setup as setup
from coterie.links.ending import end, within
from coterie.links.grpc_receiver import Receiver
from coterie.links.grpc_sender import Sender
from coterie.links.grpc_setup import Settings
from coterie.links.keys import Keys
from coterie.links.link import Link, Receive, Traffic
from coterie.links.outbox import Outbox
from coterie.links.roster import Roster, is_loopback
from coterie.links.wire import Limits, WireError

log = logging.getLogger(__name__)
ENDING = 5.0  # seconds in which streams that are told to end must have ended


class GrpcLink(Link):
    """Frames over gRPC streams; without keys in plain text, and then on this machine only."""

    def __init__(
        self,
        me: int,
        roster: Roster,
        keys: Keys | None = None,
        listen: str = "",  # host:port; none: the address in the list
        limits: Limits | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.me, self.roster, self.keys = me, roster, keys
        self.listen = listen or roster[me].address
        self.limits, self.settings = limits or Limits(), settings or Settings()
        self.traffic = Traffic()
        self._senders: dict[int, Sender] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._server: Any = None
        self._receiver: Receiver | None = None
        _check_secrecy(self)

    async def open(self, receive: Receive) -> None:
        """Begin to listen, and to connect to every other peer."""
        self._receiver = Receiver(
            self.me,
            self.roster,
            self.keys is not None,
            self.limits.frame,
            self.traffic,
            receive,
            self._met,
            knocks := setup.Knocks(),
        )
        self._server = setup.server(self.keys, self.roster, self.listen, knocks)
        self._server.add_generic_rpc_handlers((self._receiver.handler(),))
        await self._server.start()
        log.info("peer %d listens on %s (%s)", self.me, self.listen, self._protection())
        session = secrets.token_hex(16)
        self._senders = {p: self._sender(p, session) for p in self.roster.ids if p != self.me}
        self._tasks = [asyncio.create_task(sender.run()) for sender in self._senders.values()]
        self._tasks.append(asyncio.create_task(self._watch(knocks)))

    async def send(self, to: int, frame: bytes) -> None:
        """Queue a frame for a peer."""
        if to not in self._senders:
            raise InputError(f"peer {self.me} cannot send to {to}: known are {self._others()}")
        if len(frame) > self.limits.frame:
            raise WireError(f"a frame of {len(frame)} bytes; at most {self.limits.frame} may go")
        await self._senders[to].outbox.put(frame)

    async def close(self) -> None:
        """Send what is queued for reachable peers, within the time of grace, and stop."""
        waits = [asyncio.create_task(s.outbox.drain()) for s in self._senders.values()]
        if waits:
            await asyncio.wait(waits, timeout=self.settings.grace)
        await end([*waits, *self._tasks], ENDING)
        if self._server is not None and self._receiver is not None:
            # New calls are refused from here on, while those that run are ended one by one.
            ends = self._server.stop(ENDING), self._receiver.close(ENDING)
            if not await within(2 * ENDING, *ends):
                log.warning("peer %d leaves streams behind that do not end", self.me)
        self._server, self._receiver, self._tasks = None, None, []

    def unreachable(self) -> list[int]:
        """The peers to which no frame goes at present."""
        return [peer for peer, sender in self._senders.items() if not sender.outbox.reachable]

    def dropped(self) -> int:
        """How many frames were given up because their peers could not be reached."""
        return sum(sender.outbox.dropped for sender in self._senders.values())

    def _sender(self, peer: int, session: str) -> Sender:
        made = self.settings
        outbox = Outbox(made.queue_frames, made.queue_bytes, made.patience)
        entry = self.roster[peer]
        return Sender(self.me, entry, self.keys, session, made, self.traffic, outbox)

    async def _watch(self, knocks: setup.Knocks) -> None:
        while True:
            await asyncio.sleep(self.settings.watch)
            if refused := knocks.refused():
                text = "refused connections to %s that did not prove to be a listed peer: %d"
                log.warning(text, self.listen, refused)

    def _met(self, peer: int) -> None:
        if peer in self._senders:
            self._senders[peer].nudge()

    def _others(self) -> str:
        return ", ".join(str(peer) for peer in self._senders) or "none (the link is not open)"

    def _protection(self) -> str:
        return "mutual TLS" if self.keys else "no keys: plain text, on this machine only"


def _check_secrecy(link: GrpcLink) -> None:
    """Plain text stays on this machine; with keys everybody is known by a certificate."""
    entry = link.roster[link.me]
    if link.keys is None:
        open_to = [link.listen, *(peer.address for peer in link.roster.peers)]
        far = [address for address in open_to if not is_loopback(address)]
        if far or link.roster.secured:
            raise InputError(
                f"peer {link.me} has no keys, so it may use only addresses of this machine and a "
                f"list without fingerprints; got {far[0] if far else 'fingerprints'} "
                "(make keys with: coterie keys new)"
            )
    elif link.keys.fingerprint != entry.fingerprint:
        raise InputError(
            f"the key of peer {link.me} has the fingerprint {link.keys.fingerprint}, but the list "
            f"says {entry.fingerprint or 'none'}"
        )
