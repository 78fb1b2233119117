"""Frames over gRPC: they arrive, in order and once, and one slow or dead peer holds up nobody."""

import asyncio

import pytest

from coterie.errors import InputError
from coterie.links import grpc_setup
from coterie.links.chunks import WELCOME
from coterie.links.grpc_setup import Settings
from coterie.links.roster import Roster
from tests.links.grpc_peers import (
    BOTH,
    LONG,
    Mailbox,
    begin,
    link,
    opened,
    roster,
    run,
    send_all,
    settings,
    until,
)


@BOTH
def test_frames_arrive_in_order_in_both_directions(tls: bool) -> None:
    async def work(known: Roster) -> None:
        a, b = link(0, known), link(1, known)
        async with opened(a, b) as (at_a, at_b):
            for number in range(50):
                await a.send(1, b"a%d" % number)
                await b.send(0, b"b%d" % number)
            assert await at_b.hold(50) == [(0, b"a%d" % number) for number in range(50)]
            assert await at_a.hold(50) == [(1, b"b%d" % number) for number in range(50)]
            assert a.traffic.sent == b.traffic.received == 140
            assert a.traffic.received == b.traffic.sent == 140

    with roster(2, tls) as known:
        run(work(known))


def test_every_peer_hears_every_other() -> None:
    async def work(known: Roster) -> None:
        links = [link(peer, known) for peer in range(4)]
        async with opened(*links) as boxes:
            for one in links:
                for to in range(4):
                    if to != one.me:
                        await one.send(to, b"from %d" % one.me)
            for me, box in enumerate(boxes):
                want = [(peer, b"from %d" % peer) for peer in range(4) if peer != me]
                assert sorted(await box.hold(3)) == want

    with roster(4) as known:
        run(work(known))


@BOTH
def test_a_large_frame_arrives_in_pieces_between_small_ones(tls: bool) -> None:
    large = bytes(range(256)) * (1 << 15)  # 8 MB

    async def work(known: Roster) -> None:
        a, b = link(0, known), link(1, known)
        async with opened(a, b) as (_, at_b):
            for frame in (b"before", large, b"after"):
                await a.send(1, frame)
            assert [frame for _, frame in await at_b.hold(3)] == [b"before", large, b"after"]

    with roster(2, tls) as known:
        run(work(known))


def test_closing_sends_what_is_queued() -> None:
    async def work(known: Roster) -> None:
        a, b = link(0, known), link(1, known)
        async with opened(b) as (at_b,):
            async with opened(a):
                for number in range(100):
                    await a.send(1, b"%d" % number)
            assert len(at_b.got) == 100

    with roster(2) as known:
        run(work(known))


def test_closing_does_not_wait_for_a_peer_that_is_not_there() -> None:
    async def work(known: Roster) -> None:
        a = link(0, known)
        async with opened(a):
            await a.send(1, b"for nobody")
            await until(lambda: a.unreachable() == [1])

    with roster(2) as known:
        run(work(known))


def test_closing_is_bounded_when_a_peer_takes_nothing() -> None:
    async def work(known: Roster) -> None:
        a, b = link(0, known, settings=settings(grace=0.1)), link(1, known)
        async with opened(b) as (at_b,):
            at_b.gate.clear()
            async with opened(a):
                await a.send(1, b"stuck")
                await until(lambda: at_b.began)
            at_b.gate.set()
            assert await at_b.hold(1) == [(0, b"stuck")]  # its connection is gone, it is not

    with roster(2) as known:
        run(work(known))


class Endless:
    """A server that does not stop."""

    async def stop(self, grace: float) -> None:
        await asyncio.Event().wait()


def test_closing_is_bounded_when_the_server_does_not_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("coterie.links.grpc_link.ENDING", 0.05)

    async def work(known: Roster) -> None:
        a = link(0, known)
        await a.open(Mailbox().receive)
        server, a._server = a._server, Endless()
        await a.close()
        await server.stop(None)

    with roster(2) as known:
        run(work(known))
    assert "leaves streams behind" in caplog.text


def test_the_oldest_frames_for_an_unreachable_peer_are_dropped() -> None:
    async def work(known: Roster) -> None:
        few = settings(queue_frames=3)
        a, b = link(0, known, settings=few), link(1, known)
        async with opened(a):
            await until(lambda: a.unreachable() == [1])
            for number in range(10):
                await a.send(1, b"%d" % number)
            assert a.dropped() == 7
            async with opened(b) as (at_b,):
                assert [frame for _, frame in await at_b.hold(3)] == [b"7", b"8", b"9"]

    with roster(2) as known:
        run(work(known))


@BOTH
def test_a_peer_that_restarts_on_its_port_is_found_again(tls: bool) -> None:
    async def work(known: Roster) -> None:
        a = link(0, known)
        async with opened(a) as (at_a,):
            for life in range(3):
                b = link(1, known)
                async with opened(b) as (at_b,):
                    await a.send(1, b"to life %d" % life)
                    await b.send(0, b"from life %d" % life)
                    assert await at_b.hold(1) == [(0, b"to life %d" % life)]
                    await at_a.hold(life + 1)
                await until(lambda: a.unreachable() == [1])
            assert at_a.got == [(1, b"from life %d" % life) for life in range(3)]

    with roster(2, tls) as known:
        run(work(known))


def test_a_frame_that_had_arrived_does_not_come_again_after_a_reconnection() -> None:
    async def work(known: Roster) -> None:
        a, b = link(0, known, settings=settings(shortest=0.2)), link(1, known)
        async with opened(a, b) as (_, at_b):
            at_b.gate.clear()
            for number in range(20):
                await a.send(1, b"%d" % number)
            await until(lambda: at_b.began == 1)
            session = a._senders[1].session
            await replace_stream(known, session)
            at_b.gate.set()
            assert [frame for _, frame in await at_b.hold(20)] == [b"%d" % n for n in range(20)]
            await a._senders[1].outbox.drain()
            assert at_b.began == 20

    with roster(2, tls=False) as known:
        run(work(known))


async def replace_stream(known: Roster, session: str) -> None:
    """Peer 0 connects to peer 1 once more, which ends its older stream, and goes away."""
    async with grpc_setup.channel(None, known[1]) as channel:
        call = begin(channel, session=session)
        arrived, _ = WELCOME.unpack(await call.read())
        assert arrived == 1
        call.cancel()


def test_a_slow_receiver_bounds_the_queue_of_the_sender() -> None:
    async def work(known: Roster) -> None:
        few = settings(queue_frames=4, queue_bytes=1000, patience=LONG)
        a, b = link(0, known, settings=few), link(1, known)
        async with opened(a, b) as (_, at_b):
            at_b.gate.clear()
            outbox = a._senders[1].outbox
            sending = asyncio.create_task(send_all(a, [b"x" * 400] * 20))
            await until(lambda: at_b.began == 1 and len(outbox) == 2)
            assert outbox.held == 800 and not sending.done()
            at_b.gate.set()
            await sending
            assert len(await at_b.hold(20)) == 20 and a.dropped() == 0

    with roster(2) as known:
        run(work(known))


def test_a_peer_that_confirms_nothing_counts_as_unreachable_until_it_does() -> None:
    async def work(known: Roster) -> None:
        few = settings(queue_frames=2, patience=0.05)
        a, b = link(0, known, settings=few), link(1, known)
        async with opened(a, b) as (_, at_b):
            await a.send(1, b"first")
            await at_b.hold(1)
            await a._senders[1].outbox.drain()
            at_b.gate.clear()
            await send_all(a, [b"%d" % number for number in range(10)])  # it does not hang
            assert a.dropped() == 8 and a.unreachable() == [1]
            at_b.gate.set()
            await until(lambda: not a.unreachable())
            await until(lambda: at_b.got[-1] == (0, b"9"))

    with roster(2) as known:
        run(work(known))


def test_one_dead_peer_holds_up_nobody() -> None:
    async def work(known: Roster) -> None:
        few = settings(queue_frames=2)
        a, b = link(0, known, settings=few), link(1, known)
        async with opened(a, b) as (_, at_b):
            await until(lambda: a.unreachable() == [2])
            for number in range(20):
                await a.send(2, b"nobody is there")
                await a.send(1, b"%d" % number)
            assert len(await at_b.hold(20)) == 20

    with roster(3) as known:
        run(work(known))


def test_a_port_that_is_taken_is_said() -> None:
    async def work(known: Roster) -> None:
        async with opened(link(0, known)):
            with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1"):
                await link(0, known).open(Mailbox().receive)

    with roster(1) as known:
        run(work(known))


def test_a_frame_for_somebody_unknown_is_refused() -> None:
    async def work(known: Roster) -> None:
        a = link(0, known)
        with pytest.raises(InputError, match="the link is not open"):
            await a.send(1, b"x")
        async with opened(a):
            for to in (0, 9):
                with pytest.raises(InputError, match=f"cannot send to {to}: known are 1"):
                    await a.send(to, b"x")

    with roster(2) as known:
        run(work(known))


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InputError, match="chunks have 16 KiB to 4 MiB"):
        Settings(chunk=10)
