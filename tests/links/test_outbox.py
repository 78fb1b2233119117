import asyncio
from typing import Any

from coterie.links.outbox import Outbox


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_a_frame_larger_than_the_queue_goes_alone() -> None:
    async def work() -> None:
        box = Outbox(frames=10, size=100, patience=60)
        await box.put(bytes(1000))
        assert await box.after(0) == (1, bytes(1000))
        box.lose()
        await box.put(b"next")
        assert (len(box), box.held, box.dropped) == (1, 4, 1)

    run(work())


def test_frames_keep_the_order_of_the_calls_while_the_queue_is_full() -> None:
    async def work() -> None:
        box = Outbox(frames=1, size=100, patience=60)
        calls = [asyncio.create_task(box.put(b"%d" % number)) for number in range(5)]
        for number in range(5):
            assert await box.after(number) == (number + 1, b"%d" % number)
            box.confirm(number + 1)
        await asyncio.gather(*calls)
        assert (len(box), box.held, box.dropped) == (0, 0, 0)

    run(work())


def test_what_a_peer_has_is_forgotten_and_what_it_will_not_take_too() -> None:
    async def work() -> None:
        box = Outbox(frames=10, size=100, patience=60)
        for number in range(5):
            await box.put(b"%d" % number)
        box.reach(2)
        box.remove(4)
        box.remove(9)
        assert [await box.after(number) for number in (0, 3)] == [(3, b"2"), (5, b"4")]
        assert (len(box), box.held, box.dropped) == (2, 2, 1)

    run(work())


def test_draining_ends_when_the_peer_is_lost() -> None:
    async def work() -> None:
        box = Outbox(frames=10, size=100, patience=60)
        await box.put(b"x")
        draining = asyncio.create_task(box.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        box.lose()
        await draining
        assert len(box) == 1

    run(work())
