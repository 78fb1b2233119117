import asyncio
import logging
import socket
import struct
import tracemalloc
from typing import Any

import grpc
import pytest

from coterie.errors import InputError
from coterie.links import grpc_setup, keys
from coterie.links.chunks import START, WELCOME
from coterie.links.grpc_link import GrpcLink
from coterie.links.grpc_setup import Settings
from coterie.links.keys import Keys
from coterie.links.roster import PeerEntry, Roster
from coterie.links.wire import Limits, WireError
from tests.links.grpc_peers import LONG, Mailbox, key_of, link, opened, roster, settings, until

SMALL = Limits(header=1000, body=99_000)
BOTH = pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 3 * LONG))


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


def begin(channel: Any, sender: object = 0, to: object = 1, session: str = "other") -> Any:
    said = (("coterie-from", str(sender)), ("coterie-to", str(to)), ("coterie-session", session))
    return channel.stream_stream("/coterie.Link/Frames")(metadata=said)


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


async def send_all(one: GrpcLink, frames: list[bytes]) -> None:
    for frame in frames:
        await one.send(1, frame)


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


@pytest.mark.parametrize(
    ("sender", "to", "words"),
    [
        (7, 1, "peer '7' is not in the list of peers"),
        (1, 1, "peer '1' is not in the list of peers"),
        ("x", 1, "peer 'x' is not in the list of peers"),
        ("00", 1, "peer '00' is not in the list of peers"),
        (0, 2, "it looks for peer '2', this is 1"),
    ],
)
def test_a_sender_that_is_not_of_the_list_is_refused_and_logged(
    sender: object, to: object, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(known: Roster) -> None:
        async with (
            opened(link(1, known)) as (at_b,),
            grpc_setup.channel(None, known[1]) as channel,
        ):
            call = begin(channel, sender, to)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call.read()
            assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
            assert at_b.began == 0

    with roster(2, tls=False) as known:
        run(work(known))
    assert words in caplog.text


def test_a_call_that_says_nothing_about_itself_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(known: Roster) -> None:
        async with (
            opened(link(1, known)) as (at_b,),
            grpc_setup.channel(None, known[1]) as channel,
        ):
            for method in ("/coterie.Link/Frames", "/coterie.Link/Other"):
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.stream_stream(method)().read()
            assert at_b.began == 0

    with roster(2, tls=False) as known:
        run(work(known))
    assert "it looks for peer None, this is 1" in caplog.text


def impostor(known: Roster, peer: int, key: Keys) -> Roster:
    """A list in which one peer has another certificate: its own list, where it is an impostor."""
    address = known[peer].address
    others = tuple(entry for entry in known.peers if entry.id != peer)
    return Roster((*others, PeerEntry(peer, address, key.fingerprint, key.certificate)))


def test_a_peer_with_another_certificate_is_refused_and_its_fingerprint_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = key_of("impostor")

    async def work(known: Roster) -> None:
        a = link(0, known)
        fake = link(1, impostor(known, 1, wrong), keys=wrong)
        async with opened(a, fake) as (at_a, at_fake):
            await a.send(1, b"secret")
            await fake.send(0, b"lies")
            await until(lambda: f"shows the certificate {wrong.fingerprint}" in caplog.text)
            await until(lambda: f"hold our certificate {wrong.fingerprint}" in caplog.text)
            assert a.unreachable() == [1] and fake.unreachable() == [0]
            assert at_a.began == 0 and at_fake.began == 0

    with roster(2) as known:
        run(work(known))


def test_a_stranger_is_refused_and_the_listening_side_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(known: Roster) -> None:
        async with (
            opened(link(1, known, settings=settings(watch=0.05))) as (at_b,),
            grpc_setup.channel(key_of("stranger"), known[1]) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await begin(channel).read()
            await until(lambda: f"connections to {known[1].address} that did not" in caplog.text)
            assert at_b.began == 0

    with roster(2) as known:
        run(work(known))


def test_refusals_are_told_once_and_only_after_their_time() -> None:
    knocks = grpc_setup.Knocks(begun=3, proven=1)
    assert [knocks.refused() for _ in range(3)] == [0, 2, 0]
    knocks.begun += 1
    assert knocks.refused() == 0
    knocks.proven += 1
    assert knocks.refused() == 0


def test_a_listed_peer_that_claims_to_be_another_is_refused_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(known: Roster) -> None:
        async with (
            opened(link(1, known)) as (at_b,),
            grpc_setup.channel(key_of("peer-2"), known[1]) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await begin(channel, sender=0).read()
            assert at_b.began == 0

    with roster(3) as known:
        run(work(known))
    mine = key_of("peer-2").fingerprint
    assert f"its certificate {mine} is not that of peer 0" in caplog.text


def test_a_certificate_that_a_listed_peer_issued_is_refused_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    issued = issue(key_of("peer-0"))

    async def work(known: Roster) -> None:
        async with (
            opened(link(1, known)) as (at_b,),
            grpc_setup.channel(issued, known[1]) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await begin(channel, sender=0).read()
            assert at_b.began == 0

    with roster(2) as known:
        run(work(known))
    assert f"its certificate {issued.fingerprint} is not that of peer 0" in caplog.text


def issue(issuer: Keys) -> Keys:
    """A certificate for a new key, signed with another peer's key: TLS alone would let it pass."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    fresh = key_of("issued")
    plain = x509.load_pem_x509_certificate(fresh.certificate)
    parent = x509.load_pem_x509_certificate(issuer.certificate)
    builder = (
        x509.CertificateBuilder(extensions=list(plain.extensions))
        .subject_name(plain.subject)
        .issuer_name(parent.subject)
        .public_key(plain.public_key())
        .serial_number(1)
        .not_valid_before(plain.not_valid_before_utc)
        .not_valid_after(plain.not_valid_after_utc)
    )
    key: Any = serialization.load_pem_private_key(issuer.key, None)
    signed = builder.sign(key, hashes.SHA256())
    return Keys(fresh.key, signed.public_bytes(serialization.Encoding.PEM))


def test_a_client_without_a_certificate_does_not_get_in() -> None:
    async def work(known: Roster) -> None:
        async with opened(link(1, known)) as (at_b,):
            roots = grpc.ssl_channel_credentials(known[1].certificate)
            name = [("grpc.ssl_target_name_override", keys.NAME)]
            async with grpc.aio.secure_channel(known[1].address, roots, options=name) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await begin(channel).read()
            async with grpc_setup.channel(None, known[1]) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await begin(channel).read()
            assert at_b.began == 0

    with roster(2) as known:
        run(work(known))


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


def test_without_keys_a_link_stays_on_this_machine_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = Roster((PeerEntry(0, "127.0.0.1:7000"), PeerEntry(1, "10.0.0.2:7000")))
    with pytest.raises(InputError, match=r"has no keys.*10\.0\.0\.2:7000.*coterie keys new"):
        GrpcLink(0, far)
    near = Roster((PeerEntry(0, "127.0.0.1:7000"), PeerEntry(1, "[::1]:7000")))
    with pytest.raises(InputError, match=r"has no keys.*0\.0\.0\.0:7000"):
        GrpcLink(0, near, listen="0.0.0.0:7000")

    async def work(known: Roster) -> None:
        async with opened(link(0, known)):
            assert "no keys: plain text, on this machine only" in caplog.text

    caplog.set_level(logging.INFO)
    with roster(1, tls=False) as known:
        run(work(known))


def test_keys_and_list_must_belong_together() -> None:
    with roster(2) as known:
        with pytest.raises(InputError, match="peer 0 has no keys"):
            GrpcLink(0, known)
        with pytest.raises(InputError, match="the key of peer 0 has the fingerprint"):
            GrpcLink(0, known, key_of("peer-1"))
        with pytest.raises(InputError, match="no peer 5 in the list of peers; known: 0, 1"):
            GrpcLink(5, known, key_of("peer-1"))


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
