"""Whatever bytes come from a network: a frame within the limits, or a WireError."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.links.wire import (
    Limits,
    Schema,
    WireError,
    decode,
    encode,
    peek,
    schema_of,
)
from tests.links.frames import SCHEMAS, VALID, frame, header, pack, zeros


def refused_or_read(data: bytes) -> None:
    """Only a WireError may come out of bytes from a network."""
    with contextlib.suppress(WireError):
        decode(data)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise_anything_else(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_headers_and_bodies_never_raise_anything_else(head: bytes, body: bytes) -> None:
    with pytest.raises(WireError):
        decode(pack(head, body))


@given(st.binary(max_size=200))
def test_arbitrary_bodies_under_a_schema_never_raise_anything_else(body: bytes) -> None:
    with pytest.raises(WireError):
        decode(pack(header(schema=[["x", "float32", [2]]]), body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(["version", "run", "where", "kind", "schema"]), JSON)
def test_any_value_in_a_header_field_is_read_or_refused(name: str, value: Any) -> None:
    refused_or_read(pack(header(**{name: value})))


@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.integers(0, 255))
def test_a_valid_frame_with_changed_bytes_is_read_or_refused(
    place: int, first: int, second: int
) -> None:
    data = bytearray(VALID)
    data[place] = first
    data[place * 7 % len(data)] = second
    refused_or_read(bytes(data))


@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80, 0xFF])
def test_a_valid_frame_with_any_one_byte_flipped_is_read_or_refused(flip: int) -> None:
    for place in range(len(VALID)):
        data = bytearray(VALID)
        data[place] ^= flip
        refused_or_read(bytes(data))


PLACES = st.integers(0, 2**20)


BYTES = st.binary(max_size=12)


NUMBERS = st.one_of(st.integers(0, 300), st.sampled_from([2**31, 2**32 - 1, 2**63, 2**64 - 1]))


def written(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


CHANGES = st.one_of(  # of the bytes of a frame
    st.builds(lambda p, b: lambda d: written(d, p % (len(d) + 1), b), PLACES, BYTES),
    st.builds(lambda p: lambda d: d[: p % (len(d) + 1)], PLACES),
    st.builds(
        lambda p, b: lambda d: d[: p % (len(d) + 1)] + b + d[p % (len(d) + 1) :], PLACES, BYTES
    ),
    st.builds(lambda p, q: lambda d: d[: p % (len(d) + 1)] + d[q % (len(d) + 1) :], PLACES, PLACES),
    st.builds(lambda n: lambda d: written(d, 4, struct.pack(">I", n % 2**32)), NUMBERS),
    st.builds(lambda n: lambda d: written(d, 8, struct.pack(">Q", n)), NUMBERS),
    st.builds(
        lambda p, n: lambda d: written(d, p % (len(d) + 1), struct.pack("<Q", n)), PLACES, NUMBERS
    ),
)


@settings(max_examples=400)
@given(SCHEMAS, st.lists(CHANGES, min_size=1, max_size=4), st.booleans())
def test_mutated_frames_are_read_within_the_limits_or_refused(
    schema: Schema, changes: list[Any], mended: bool
) -> None:
    data = encode(frame(zeros(schema)))
    for change in changes:
        data = change(data)
    if mended and len(data) >= 16:  # lengths that agree, so that the inside is reached
        head = min(struct.unpack_from(">I", data, 4)[0], len(data) - 16)
        data = written(data, 4, struct.pack(">IQ", head, len(data) - 16 - head))
    limits = Limits(header=4096, body=4096, tensor=2048)
    with contextlib.suppress(WireError):
        got = decode(data, limits)
        assert sum(rows.nbytes for rows in got.rows.values()) <= 4096
        assert schema_of(got.rows) == peek(data, limits).schema
