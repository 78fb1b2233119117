import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from coterie.links.link import Receive
from coterie.links.loopback import Hub, LoopbackLink


def bounded(test: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(within())


async def nobody(sender: int, frame: bytes) -> None:
    """Hear nothing of it."""


def listener(heard: list[tuple[int, bytes]]) -> Receive:
    async def receive(sender: int, frame: bytes) -> None:
        heard.append((sender, frame))

    return receive


async def opened(hub: Hub, peer: int, receive: Receive = nobody) -> LoopbackLink:
    link = hub.link(peer)
    await link.open(receive)
    return link


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_frames_arrive_in_order_with_the_name_of_their_sender() -> None:
    async def test() -> None:
        hub, heard = Hub(), list[tuple[int, bytes]]()
        one = await opened(hub, 1)
        two = await opened(hub, 2, listener(heard))
        for number in range(200):  # more than the queue holds: the sender waits
            await one.send(2, bytes([number]))
        await until(lambda: len(heard) == 200)
        assert heard == [(1, bytes([number])) for number in range(200)]
        assert one.traffic.sent == two.traffic.received == 200

    bounded(test())


def test_of_what_is_sent_to_a_closed_peer_the_newest_frames_are_kept() -> None:
    async def test() -> None:
        hub, heard = Hub(capacity=3), list[tuple[int, bytes]]()
        one = await opened(hub, 1)
        for number in range(10):
            await one.send(2, bytes([number]))
        await opened(hub, 2, listener(heard))
        await until(lambda: len(heard) == 3)
        assert [frame for _, frame in heard] == [bytes([7]), bytes([8]), bytes([9])]

    bounded(test())


def test_nothing_passes_between_parted_groups_until_they_are_healed() -> None:
    async def test() -> None:
        hub, heard = Hub(), list[tuple[int, bytes]]()
        links = [await opened(hub, peer, listener(heard)) for peer in range(3)]
        hub.part([0], [1])
        await links[0].send(1, b"a")
        await links[0].send(2, b"b")
        await links[2].send(1, b"c")
        await until(lambda: len(heard) == 2)
        assert sorted(heard) == [(0, b"b"), (2, b"c")]
        hub.heal()
        await until(lambda: len(heard) == 3)
        assert heard[2] == (0, b"a")

    bounded(test())


def test_frames_can_be_lost_and_delayed() -> None:
    async def test() -> None:
        hub, heard = Hub(), list[tuple[int, bytes]]()
        one = await opened(hub, 1)
        await opened(hub, 2, listener(heard))
        hub.lose = lambda source, to, frame: frame == b"lost"
        hub.delay = lambda source, to: 0.01
        for frame in (b"lost", b"kept", b"lost"):
            await one.send(2, frame)
        await until(lambda: bool(heard))
        await one.close()
        assert heard == [(1, b"kept")]

    bounded(test())


def test_a_closing_link_lets_its_last_frames_arrive() -> None:
    async def test() -> None:
        hub, heard = Hub(), list[tuple[int, bytes]]()
        one = await opened(hub, 1)
        await opened(hub, 2, listener(heard))
        await one.send(2, b"bye")
        await one.send(3, b"to nobody")
        await one.close()
        assert heard == [(1, b"bye")]
        assert not hub.reaches(1, 2)

    bounded(test())


def test_a_receiver_that_is_busy_holds_up_its_sender_alone() -> None:
    async def test() -> None:
        hub, heard, free = Hub(capacity=2), list[tuple[int, bytes]](), asyncio.Event()

        async def slow(sender: int, frame: bytes) -> None:
            await free.wait()

        one = await opened(hub, 1)
        await opened(hub, 2, slow)
        await opened(hub, 3, listener(heard))
        stuck = asyncio.create_task(_send_many(one, 2, 10))
        await _send_many(one, 3, 10)
        await until(lambda: len(heard) == 10)
        assert not stuck.done()
        free.set()
        await stuck

    bounded(test())


async def _send_many(link: LoopbackLink, to: int, count: int) -> None:
    for _ in range(count):
        await link.send(to, b"x")
