"""Frames on their way to one peer: numbered, bounded, and dropped when it cannot be reached."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass
class Outbox:
    """The frames that a peer has not confirmed, oldest first.

    A peer that was not tried yet counts as reachable, one that confirms nothing for `patience`
    seconds while its queue is full does not.
    """

    frames: int  # how many it holds at most
    size: int  # bytes that it holds at most; one frame may be larger, alone
    patience: float  # seconds
    reachable: bool = True
    dropped: int = 0  # frames given up so far
    held: int = 0  # bytes
    _items: deque[tuple[int, bytes]] = field(default_factory=deque)
    _number: int = 0  # of the newest frame
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def put(self, frame: bytes) -> None:
        """Queue a frame, in the order of the calls; waits while a live peer's queue is full."""
        async with self._turn:
            while self._full(len(frame)):
                if self.reachable:
                    await self._progress()
                else:
                    self._drop()
            self._number += 1
            self._items.append((self._number, frame))
            self.held += len(frame)
            self._wake()

    async def after(self, number: int) -> tuple[int, bytes]:
        """The first frame with a higher number and that number, as soon as there is one."""
        while True:
            for item in self._items:
                if item[0] > number:
                    return item
            await self._changed.wait()

    def reach(self, number: int) -> None:
        """The peer answers and has all frames up to this one."""
        self.reachable = True
        self.confirm(number)

    def lose(self) -> None:
        """The peer cannot be reached."""
        self.reachable = False
        self._wake()

    def confirm(self, number: int) -> None:
        """The peer has all frames up to this one."""
        while self._items and self._items[0][0] <= number:
            self.held -= len(self._items.popleft()[1])
            self.reachable = True
        self._wake()

    def remove(self, number: int) -> None:
        """Give up one frame, which the peer would not take."""
        for item in [item for item in self._items if item[0] == number]:
            self._items.remove(item)
            self._count_out(item[1])

    async def drain(self) -> None:
        """Wait until the peer has everything or cannot be reached."""
        while self._items and self.reachable:
            await self._changed.wait()

    def __len__(self) -> int:
        """The number of frames in it."""
        return len(self._items)

    def _full(self, more: int) -> bool:
        return bool(self._items) and (
            len(self._items) >= self.frames or self.held + more > self.size
        )

    async def _progress(self) -> None:
        try:
            async with asyncio.timeout(self.patience):
                await self._changed.wait()
        except TimeoutError:
            self.lose()

    def _drop(self) -> None:
        self._count_out(self._items.popleft()[1])

    def _count_out(self, frame: bytes) -> None:
        self.held -= len(frame)
        self.dropped += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
