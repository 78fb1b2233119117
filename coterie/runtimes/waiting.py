"""What a peer waits for: other peers, and its own threads. Being asked to stop ends every wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class Stopped(Exception):
    """The peer was asked to stop."""


class Waiting:
    """The waits of one peer, one at a time; `sleep` is the clock."""

    def __init__(self, name: str, sleep: Sleep) -> None:
        self.sleep = sleep
        self.stopping = False
        self.failure: Exception | None = None
        self._changed = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, name)  # computes
        self._files = ThreadPoolExecutor(1, f"{name}: files")  # must not wait for it

    def stop(self) -> None:
        """Let the present wait, and all later ones, end with Stopped."""
        self.stopping = True
        self.look()

    def fail(self, error: Exception) -> None:
        """Let the present wait, and all later ones, end with this error."""
        self.failure = error
        self.look()

    def mind(self, task: asyncio.Task[None]) -> None:
        """Fail as soon as this task, which should go on all the time, does."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self.fail(error)

        task.add_done_callback(ended)

    def look(self) -> None:
        """Something has happened that somebody may wait for."""
        self._changed.set()

    async def until(self, missing: Callable[[], set[int]], seconds: float) -> set[int]:
        """Until nobody is missing, at most this long; returns who still is."""
        timer = asyncio.ensure_future(self.sleep(seconds))
        timer.add_done_callback(lambda over: self.look())
        try:
            while (late := missing()) and not timer.done():
                await self._news()
            self._heed()
            return late
        finally:
            timer.cancel()

    async def done(self, future: asyncio.Future[T]) -> T:
        """Until this is done; who is asked to stop gives it up."""
        future.add_done_callback(lambda over: self.look())
        try:
            while not future.done():
                await self._news()
            return future.result()
        finally:
            future.cancel()

    async def work(self, task: Callable[[], T]) -> T:
        """Do something slow in the worker's thread; after a stop it may go on there, unheeded."""
        return await self.done(asyncio.get_running_loop().run_in_executor(self._worker, task))

    async def write(self, task: Callable[[], None]) -> None:
        """Do something with files, to the end, whatever else is going on."""
        await asyncio.get_running_loop().run_in_executor(self._files, task)

    async def spare(self, task: Callable[[], T], seconds: float | None) -> T | None:
        """Let the worker do something if it comes to it in this time, and else nothing."""
        future = asyncio.get_running_loop().run_in_executor(self._worker, task)
        await asyncio.wait([future], timeout=seconds)
        if future.done():
            return future.result()
        future.cancel()
        return None

    def close(self) -> None:
        """Take no more work; what is under way is not waited for."""
        for threads in (self._worker, self._files):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _news(self) -> None:
        self._heed()
        self._changed.clear()
        await self._changed.wait()

    def _heed(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.stopping:
            raise Stopped
