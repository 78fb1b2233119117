"""Control messages: whoever did not sign them, or signed something else, is not believed."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.links.notes import Identity, Note, NoteError, Route, Seal, decode, encode
from tests.links.peers import fingerprint, identity, write

ROUTE = Route(bytes(16), 0, 1)
HELLO = Note("hello", b"s" * 16, b"t" * 16, 0, 0, True, body=identity("peer 0").certificate)
FRAME = Note("frame", b"s" * 16, b"t" * 16, 7, 5, size=5, body=b"frame")
LIMIT = 1 << 20


def sender(name: str = "peer 0") -> Seal:
    return Seal(identity(name), {})


def receiver(pin: str | None = None) -> Seal:
    return Seal(identity("peer 1"), {0: pin or fingerprint("peer 0")})


def introduced() -> Seal:
    seal = receiver()
    decode(encode(HELLO, ROUTE, sender()), ROUTE, seal, LIMIT)
    return seal


def same(one: Note, other: Note) -> bool:
    return replace(one, digest=b"") == replace(other, digest=b"")


def test_a_note_comes_back_as_it_was():
    found = decode(encode(FRAME, ROUTE, sender()), ROUTE, introduced(), LIMIT)
    assert same(found, FRAME)


def test_a_frame_in_the_store_has_no_body():
    stored = replace(FRAME, body=b"", url="file:///a/b", digest=b"d" * 32, size=10**9)
    assert decode(encode(stored, ROUTE, sender()), ROUTE, introduced(), LIMIT) == stored


def test_who_has_not_shown_a_certificate_is_refused():
    with pytest.raises(NoteError, match="has not shown"):
        decode(encode(FRAME, ROUTE, sender()), ROUTE, receiver(), LIMIT)


def test_a_certificate_with_another_fingerprint_is_refused():
    with pytest.raises(NoteError, match="unknown fingerprint"):
        decode(encode(HELLO, ROUTE, sender()), ROUTE, receiver(fingerprint("other")), LIMIT)


def test_the_certificate_of_another_does_not_help_without_its_key():
    with pytest.raises(NoteError, match="signature"):
        decode(encode(HELLO, ROUTE, sender("thief")), ROUTE, receiver(), LIMIT)


@pytest.mark.parametrize(
    "elsewhere", [Route(b"r" * 16, 0, 1), Route(bytes(16), 0, 2), Route(bytes(16), 2, 1)]
)
def test_a_note_counts_for_one_run_and_one_pair_of_peers(elsewhere):
    with pytest.raises(NoteError):
        decode(encode(FRAME, elsewhere, sender()), ROUTE, introduced(), LIMIT)


def test_another_body_under_the_same_head_is_refused():
    head, signature, _ = msgpack.unpackb(encode(FRAME, ROUTE, sender()))
    with pytest.raises(NoteError, match="sha256"):
        decode(msgpack.packb([head, signature, b"evil!"]), ROUTE, introduced(), LIMIT)


def test_fingerprints_may_be_written_with_colons_and_capitals():
    pin = fingerprint("peer 0").upper()
    seal = receiver(":".join(pin[i : i + 2] for i in range(0, 64, 2)))
    decode(encode(HELLO, ROUTE, sender()), ROUTE, seal, LIMIT)


def test_a_body_above_the_limit_is_not_built():
    large = replace(FRAME, body=bytes(20000), size=20000)
    with pytest.raises(NoteError, match="unreadable"):
        decode(encode(large, ROUTE, sender()), ROUTE, introduced(), 10000)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_refused(data):
    with pytest.raises(NoteError):
        decode(data, ROUTE, Seal(None, {}), LIMIT)


scalars = st.sampled_from([None, True, -1, 0, 7, "", "frame", b"", bytes(16), 1.5, 2**63])


@settings(max_examples=200, deadline=None)
@given(st.lists(scalars, max_size=12), st.binary(max_size=20))
def test_heads_with_other_fields_are_refused(fields, body):
    with pytest.raises(NoteError):
        decode(msgpack.packb([msgpack.packb(fields), b"", body]), ROUTE, Seal(None, {}), LIMIT)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place, change):
    payload = bytearray(encode(FRAME, ROUTE, sender()))
    payload[place % len(payload)] ^= change
    try:
        found = decode(bytes(payload), ROUTE, introduced(), LIMIT)
    except NoteError:
        return
    assert same(found, FRAME)  # an encoding of the same values


def test_keys_are_read_from_pem(tmp_path):
    certificate, key = (path.read_bytes() for path in write("peer 0", tmp_path))
    assert Identity.of(key, certificate).fingerprint == fingerprint("peer 0")
    other, _ = write("peer 1", tmp_path)
    with pytest.raises(InputError, match="not that of the certificate"):
        Identity.of(key, other.read_bytes())
    with pytest.raises(InputError, match="not a key"):
        Identity.of(b"nonsense", certificate)
