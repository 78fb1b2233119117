"""What breaks the rules on a gRPC link is ended, costs no memory, and harms nobody."""

import asyncio
import socket
import struct
import tracemalloc

import grpc
import pytest

from coterie.links import grpc_setup
from coterie.links.chunks import START
from coterie.links.roster import Roster
from coterie.links.wire import WireError
from tests.links.grpc_peers import (
    BOTH,
    LONG,
    SMALL,
    Mailbox,
    begin,
    link,
    opened,
    roster,
    run,
    send_all,
    until,
)


def test_a_frame_above_the_limit_is_not_sent() -> None:
    async def work(known: Roster) -> None:
        a = link(0, known, limits=SMALL)
        async with opened(a):
            with pytest.raises(WireError, match="a frame of 200000 bytes; at most 100016 may go"):
                await a.send(1, bytes(200_000))

    with roster(2) as known:
        run(work(known))


def test_a_frame_above_the_limit_of_the_other_side_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(known: Roster) -> None:
        a, b = link(0, known), link(1, known, limits=SMALL)
        async with opened(a, b) as (_, at_b):
            await send_all(a, [bytes(200_000), b"small"])
            assert await at_b.hold(1) == [(0, b"small")]
            assert a.dropped() == 1
        assert "peer 1 takes no frame of 200000 bytes" in caplog.text

    with roster(2) as known:
        run(work(known))


async def refused(known: Roster, messages: list[bytes], box: Mailbox) -> None:
    """Peer 0 writes these messages to peer 1, which ends the stream and takes nothing."""
    async with grpc_setup.channel(None, known[1]) as channel:
        call = begin(channel)
        await call.read()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            for message in messages:
                await call.write(message)
            while await call.read() is not grpc.aio.EOF:
                pass
            raise asyncio.InvalidStateError(await call.code())
        assert await call.code() != grpc.StatusCode.OK
    assert box.got == []


HOSTILE = {
    "oversized": [START.pack(1, 1 << 40) + b"x"],
    "just above": [START.pack(1, SMALL.frame + 1) + bytes(20_000)],
    "of no bytes": [START.pack(1, 0)],
    "cut": [b"abc"],
    "empty": [b""],
    "longer than announced": [START.pack(1, 10) + bytes(11)],
    "longer than announced at the end": [START.pack(1, 20_000) + bytes(17_000), bytes(4000)],
    "of tiny pieces": [START.pack(1, 50_000) + b"x", b"x", b"x"],
    "numbered zero": [START.pack(0, 3) + b"abc"],
    "a message above the largest chunk": [bytes(grpc_setup.LARGEST + 100)],
}


@pytest.mark.parametrize("messages", HOSTILE.values(), ids=HOSTILE)
def test_a_stream_that_breaks_the_rules_is_ended_and_others_go_on(messages: list[bytes]) -> None:
    async def work(known: Roster) -> None:
        b, c = link(1, known, limits=SMALL), link(2, known)
        async with opened(b, c) as (at_b, _):
            await refused(known, messages, at_b)
            await c.send(1, b"honest")
            assert await at_b.hold(1) == [(2, b"honest")]

    with roster(3, tls=False) as known:
        run(work(known))


def test_an_announced_size_is_refused_before_memory_is_taken() -> None:
    async def work(known: Roster) -> int:
        async with opened(link(1, known, limits=SMALL)) as (at_b,):
            tracemalloc.start()
            await refused(known, [START.pack(1, 1 << 34) + bytes(20_000)], at_b)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return peak

    with roster(2, tls=False) as known:
        assert run(work(known)) < 8 << 20


@BOTH
def test_garbage_on_the_port_harms_nobody(tls: bool) -> None:
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(range(256)) * 40,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5000,
        struct.pack(">4sIQ", b"COT1", 2**32 - 1, 2**64 - 1),
        b"\x16\x03\x01\xff\xff" + b"\x01" * 500,
    ]

    async def work(known: Roster) -> None:
        a, b = link(0, known), link(1, known)
        async with opened(a, b) as (_, at_b):
            for data in garbage:
                await asyncio.to_thread(knock, known[1].address, data)
            await a.send(1, b"honest")
            assert await at_b.hold(1) == [(0, b"honest")]

    with roster(2, tls) as known:
        run(work(known))


def knock(address: str, data: bytes) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=LONG) as line:
        line.sendall(data)


def test_a_receiver_that_fails_on_a_frame_gets_the_next(caplog: pytest.LogCaptureFixture) -> None:
    got: list[bytes] = []

    async def receive(_: int, frame: bytes) -> None:
        if frame == b"bad":
            raise ValueError("cannot read this")
        got.append(frame)

    async def work(known: Roster) -> None:
        a, b = link(0, known), link(1, known)
        async with opened(a):
            await b.open(receive)
            await send_all(a, [b"bad", b"good"])
            await until(lambda: got == [b"good"])
            await b.close()

    with roster(2) as known:
        run(work(known))
    assert "a frame of peer 0 was not taken" in caplog.text
