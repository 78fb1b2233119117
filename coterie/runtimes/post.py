"""Letters on their way out: one queue a peer, so that a slow one holds up nobody."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from coterie.links.ending import end
from coterie.links.link import Link
from coterie.runtimes.logs import tell

CLOSING = 10.0  # seconds for what is being handed over to be given up


class Post:
    """Hands frames to a link, in order for each peer; the oldest go beyond `room` bytes."""

    def __init__(self, link: Link, room: int, failed: Callable[[Exception], None]) -> None:
        self.link = link
        self.room = room
        self.failed = failed  # told what no later frame can mend, such as a store that is not set
        self.queues: dict[int, deque[bytes]] = {}
        self.waiting: dict[int, int] = {}  # bytes
        self.carriers: dict[int, asyncio.Task[None]] = {}
        self.dropped = 0  # frames

    def put(self, to: int, frame: bytes) -> None:
        """Send a frame as soon as the link takes it."""
        queue = self.queues.setdefault(to, deque())
        queue.append(frame)
        self.waiting[to] = self.waiting.get(to, 0) + len(frame)
        while self.waiting[to] > self.room and len(queue) > 1:
            self.waiting[to] -= len(queue.popleft())
            self.dropped += 1
        if to not in self.carriers or self.carriers[to].done():
            self.carriers[to] = asyncio.create_task(self._carry(to))

    async def _carry(self, to: int) -> None:
        queue = self.queues[to]
        while queue:
            frame = queue.popleft()
            self.waiting[to] -= len(frame)
            try:
                await self.link.send(to, frame)
            except OSError as error:
                self.dropped += 1
                tell("frame not sent", {"to": to, "why": repr(str(error))}, logging.WARNING)
            except Exception as error:
                self.failed(error)

    async def flush(self, seconds: float) -> None:
        """Wait until everything is handed over, at most this long."""
        busy = [task for task in self.carriers.values() if not task.done()]
        if busy:
            await asyncio.wait(busy, timeout=seconds)

    async def close(self) -> None:
        """Stop; what is still here is not sent."""
        await end(self.carriers.values(), CLOSING)
