"""The end of tasks: asked for again and again, and waited for no longer than a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

AGAIN = 0.5  # seconds until a task that goes on is cancelled once more


async def end(tasks: Iterable[asyncio.Future[Any]], seconds: float) -> bool:
    """Cancel tasks and see them end, at most this long; returns whether all of them have.

    Once is not enough: wait_for of Python 3.11 forgets a cancellation that comes together with its
    result, and libraries have such places too.
    """
    clock = asyncio.get_running_loop().time
    whole = set(tasks)
    until, alive = clock() + seconds, {task for task in whole if not task.done()}
    while alive and clock() < until:
        for task in alive:
            task.cancel()
        _, alive = await asyncio.wait(alive, timeout=min(AGAIN, max(until - clock(), 0)))
    for task in whole - alive:
        if not task.cancelled():
            task.exception()  # nobody else asks what became of it
    return not alive


async def within(seconds: float, *works: Coroutine[Any, Any, Any]) -> bool:
    """Do things at once, and give up what is not done after this long; whether all was done.

    What a work raises is raised here; one that cannot be cancelled is left behind.
    """
    tasks = {asyncio.ensure_future(work) for work in works}
    try:
        done, late = await asyncio.wait(tasks, timeout=seconds)
    finally:
        await end(tasks, AGAIN)
    for task in done:
        task.result()
    return not late
