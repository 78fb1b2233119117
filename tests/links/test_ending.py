"""Tasks that do not want to end hold up nobody for longer than was said."""

from __future__ import annotations

import asyncio

import pytest

from coterie.links.ending import end, within


async def stubborn(refusals: int) -> None:
    """Ends when it has been cancelled once more than this."""
    while refusals >= 0:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            refusals -= 1


async def begun(refusals: int) -> asyncio.Task[None]:
    task = asyncio.create_task(stubborn(refusals))
    await asyncio.sleep(0)
    return task


def test_a_task_that_forgets_a_cancellation_is_cancelled_again(monkeypatch) -> None:
    monkeypatch.setattr("coterie.links.ending.AGAIN", 0.01)

    async def test() -> None:
        task = await begun(refusals=3)
        assert await end([task], seconds=60)
        assert task.done()

    asyncio.run(test())


def test_a_task_that_never_ends_is_left_behind() -> None:
    async def test() -> None:
        task = await begun(refusals=10**9)
        async with asyncio.timeout(60):
            assert not await end([task], seconds=0.05)
            assert not await within(0.05, stubborn(1))
        task.cancel()

    loop = asyncio.new_event_loop()  # asyncio.run would wait for it
    loop.set_exception_handler(lambda loop, about: None)
    loop.run_until_complete(test())
    loop.close()


def test_what_went_wrong_in_an_ended_task_is_nobodys_news() -> None:
    said = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: said.append(about))

        async def fails() -> None:
            raise ValueError("lost")

        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        assert await end([task], seconds=60)

    asyncio.run(test())
    assert not said


def test_what_is_done_in_time_is_done_and_says_what_went_wrong() -> None:
    async def works() -> None:
        await asyncio.sleep(0)

    async def fails() -> None:
        raise ValueError("lost")

    assert asyncio.run(within(60, works(), works()))
    with pytest.raises(ValueError, match="lost"):
        asyncio.run(within(60, works(), fails()))


def test_there_may_be_nothing_to_end() -> None:
    assert asyncio.run(end([], seconds=60))
