import asyncio

import pytest

from coterie.errors import InputError
from coterie.links.link import Link, Receive, Traffic
from coterie.runtimes.post import Post

from .company import Averaging, Company, eventually, within


class Slow(Link):
    """Takes frames for peer 1 only when it is open."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.free = asyncio.Event()
        self.got: list[tuple[int, bytes]] = []

    async def open(self, receive: Receive) -> None:
        """Nothing to do."""

    async def send(self, to: int, frame: bytes) -> None:
        if frame == b"lost":
            raise ConnectionResetError("gone")
        if to == 1:
            await self.free.wait()
        self.got.append((to, frame))

    async def close(self) -> None:
        """Nothing to do."""


def unexpected(error: Exception) -> None:
    raise AssertionError(error)


def test_a_slow_peer_holds_up_nobody_and_frames_stay_in_order() -> None:
    async def test() -> None:
        link = Slow()
        post = Post(link, 1000, unexpected)
        for number in range(3):
            post.put(1, bytes([number]))
            post.put(2, bytes([number]))
        await eventually(lambda: len(link.got) == 3)
        assert link.got == [(2, b"\0"), (2, b"\1"), (2, b"\2")]
        link.free.set()
        await post.flush(60)
        assert link.got[3:] == [(1, b"\0"), (1, b"\1"), (1, b"\2")]
        await post.close()

    within(test())


def test_beyond_its_room_the_oldest_frames_are_dropped() -> None:
    async def test() -> None:
        link = Slow()
        post = Post(link, 250, unexpected)
        for number in range(10):
            post.put(1, bytes([number]) * 100)
        post.put(1, bytes(1000))  # one is always kept
        assert list(post.queues[1]) == [bytes(1000)]
        assert post.dropped == 10
        await post.close()

    within(test())


def test_a_frame_that_a_link_loses_is_no_failure() -> None:
    async def test() -> None:
        link = Slow()
        post = Post(link, 1000, unexpected)
        for frame in (b"a", b"lost", b"b"):
            post.put(2, frame)
        await post.flush(60)
        assert link.got == [(2, b"a"), (2, b"b")]

    within(test())


def test_what_no_later_frame_can_mend_ends_the_peer() -> None:
    class Broken(Slow):
        async def send(self, to: int, frame: bytes) -> None:
            raise InputError("frames are too large for this link; name a store")

    async def test() -> None:
        company = Company(Averaging(), n=2, rounds=2)
        peer = company.peer(0, link=Broken())
        with pytest.raises(InputError, match="name a store"):
            await peer.run()

    within(test())
