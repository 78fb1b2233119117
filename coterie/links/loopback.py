"""A link between peers of one process: frames wait in queues, and a hub can cut or lose them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from coterie.links.ending import end
from coterie.links.link import Link, Receive, Traffic

CLOSING = 10.0  # seconds that a closing link waits for others to hear it
Way = tuple[int, int]  # from whom, to whom


class Hub:
    """Where the links of one process meet.

    `part` stops all frames between groups of peers until `heal`; `lose` decides frame by frame
    what is lost; `delay` says how many seconds a frame takes.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.capacity = capacity  # frames that wait on one way
        self.lose: Callable[[int, int, bytes], bool] = lambda source, to, frame: False
        self.delay: Callable[[int, int], float] = lambda source, to: 0.0
        self.group: dict[int, int] = {}  # of parted peers
        self.open: dict[int, LoopbackLink] = {}
        self.ways: dict[Way, deque[bytes]] = {}
        self.changed: dict[Way, asyncio.Event] = {}

    def link(self, peer: int) -> LoopbackLink:
        """The link of a peer; a peer that starts again takes a new one."""
        return LoopbackLink(self, peer)

    def part(self, *groups: Iterable[int]) -> None:
        """Let no frame pass between these groups; who is in none of them hears everybody."""
        self.group = {peer: number for number, group in enumerate(groups) for peer in group}

    def heal(self) -> None:
        """Let all frames pass again."""
        self.group = {}
        self.wake()

    def forget(self, peer: int) -> None:
        """Lose all frames on their way from or to a peer."""
        for way, queue in self.ways.items():
            if peer in way:
                queue.clear()
        self.wake()

    def reaches(self, source: int, to: int) -> bool:
        """Whether a frame would get through now."""
        groups = {self.group.get(source), self.group.get(to)} - {None}
        return source in self.open and to in self.open and len(groups) < 2

    def way(self, way: Way) -> tuple[deque[bytes], asyncio.Event]:
        """The frames on a way, and the event of a change there."""
        return self.ways.setdefault(way, deque()), self.changed.setdefault(way, asyncio.Event())

    def wake(self) -> None:
        """Look at all ways anew."""
        for event in self.changed.values():
            event.set()


class LoopbackLink(Link):
    """One peer's link to the others at a hub."""

    def __init__(self, hub: Hub, peer: int) -> None:
        self.hub = hub
        self.peer = peer
        self.traffic = Traffic()
        self.pumps: dict[int, asyncio.Task[None]] = {}

    async def open(self, receive: Receive) -> None:
        """Begin to listen."""
        self.receive = receive
        self.hub.open[self.peer] = self
        for source, to in list(self.hub.ways):
            if to == self.peer:
                self.listen_to(source)
        self.hub.wake()

    def listen_to(self, source: int) -> None:
        """Carry what a peer sends, one frame after the other."""
        if source not in self.pumps:
            self.pumps[source] = asyncio.create_task(self._pump(source))

    async def send(self, to: int, frame: bytes) -> None:
        """Queue a frame; waits while the queue is full, unless the peer cannot be reached."""
        if self.hub.lose(self.peer, to, frame):
            return
        queue, changed = self.hub.way((self.peer, to))
        while len(queue) >= self.hub.capacity and self.hub.reaches(self.peer, to):
            changed.clear()
            await changed.wait()
        if len(queue) >= self.hub.capacity:
            queue.popleft()
        queue.append(frame)
        self.traffic.sent += len(frame)
        changed.set()
        if to in self.hub.open:
            self.hub.open[to].listen_to(self.peer)

    async def close(self) -> None:
        """Stop listening, once those who can be reached have heard everything."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                for way in [way for way in self.hub.ways if way[0] == self.peer]:
                    await self._drain(way)
        if self.hub.open.get(self.peer) is self:
            del self.hub.open[self.peer]
        await end(self.pumps.values(), CLOSING)
        self.hub.wake()

    async def _drain(self, way: Way) -> None:
        queue, changed = self.hub.way(way)
        while queue and self.hub.reaches(*way):
            changed.clear()
            await changed.wait()

    async def _pump(self, source: int) -> None:
        queue, changed = self.hub.way((source, self.peer))
        while True:
            while not queue or not self.hub.reaches(source, self.peer):
                changed.clear()
                await changed.wait()
            frame = queue.popleft()
            changed.set()
            if (delay := self.hub.delay(source, self.peer)) > 0:
                await asyncio.sleep(delay)
            self.traffic.received += len(frame)
            await self.receive(source, frame)
