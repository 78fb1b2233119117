"""Who may talk over gRPC: the holders of the listed certificates, and nobody in their name."""

import logging
from typing import Any

import grpc
import pytest

from coterie.errors import InputError
from coterie.links import grpc_setup, keys
from coterie.links.grpc_link import GrpcLink
from coterie.links.keys import Keys
from coterie.links.roster import PeerEntry, Roster
from tests.links.grpc_peers import (
    begin,
    key_of,
    link,
    opened,
    roster,
    run,
    settings,
    until,
)


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
