import contextlib
import math
import struct
from typing import Any

import msgpack
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.links.memory import MemoryLink
from coterie.links.wire import (
    _DTYPES,
    MAGIC,
    Frame,
    Limits,
    WireError,
    decode,
    encode,
    frame_size,
    schema_of,
)

RUN = bytes(range(16))
SHAPES = [(), (0,), (0, 3), (3,), (2, 0), (2, 3, 4)]


def frame(rows: dict[str, Tensor], **other: Any) -> Frame:
    plain = {"run": RUN, "round": 3, "superstep": 1, "sender": 5, "kind": "send"}
    return Frame(**{**plain, **other}, rows=rows)


def pack(header: Any, body: bytes = b"") -> bytes:
    head = header if isinstance(header, bytes) else msgpack.packb(header)
    return struct.pack(">4sIQ", MAGIC, len(head), len(body)) + head + body


def header(**changed: Any) -> dict[str, Any]:
    plain = {"version": 1, "run": RUN, "where": bytes(24), "kind": "send", "schema": []}
    return {**plain, **changed}


VALID = encode(frame({"params": torch.arange(6.0).view(2, 3), "choice": torch.tensor([1, 0])}))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", _DTYPES.values(), ids=str)
def test_rows_of_every_type_and_shape_survive(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rows = (torch.arange(math.prod(shape)) % 2).view(shape).to(dtype)
    sent = frame({"x": rows})
    data = encode(sent)
    got = decode(data)
    assert (got.run, got.round, got.superstep, got.sender, got.kind) == (RUN, 3, 1, 5, "send")
    assert got.rows["x"].dtype == dtype
    assert torch.equal(got.rows["x"], rows)
    assert frame_size("send", schema_of(sent.rows)) == len(data)


def test_special_values_survive_bit_for_bit() -> None:
    rows = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1e-310], dtype=torch.float64)
    got = decode(encode(frame({"x": rows}))).rows["x"]
    assert torch.equal(got.view(torch.int64), rows.view(torch.int64))


def test_names_keep_their_order() -> None:
    rows = {name: torch.zeros(1) for name in ("z", "a", "ü", "m")}
    assert list(decode(encode(frame(rows))).rows) == ["z", "a", "ü", "m"]


def test_a_frame_may_carry_nothing() -> None:
    data = encode(frame({}, kind="ask"))
    assert decode(data).rows == {}
    assert len(data) == frame_size("ask", ())


def test_rows_need_not_be_contiguous() -> None:
    rows = torch.arange(12.0).view(3, 4)
    sent = {"turned": rows.T, "spread": rows[:1].expand(5, -1), "part": rows[:, 1:3]}
    got = decode(encode(frame(sent))).rows
    assert all(torch.equal(got[name], sent[name]) for name in sent)


def test_two_names_may_hold_the_same_tensor() -> None:
    rows = torch.randn(1, 4)
    got = decode(encode(frame({"params": rows, "core": rows[:, :2]}))).rows
    assert torch.equal(got["core"], rows[:, :2])


WHERE = st.integers(-(2**63), 2**63 - 1)


@given(WHERE, WHERE, WHERE, st.binary(min_size=16, max_size=16))
def test_the_size_does_not_depend_on_round_sender_or_run(
    t: int, superstep: int, sender: int, run: bytes
) -> None:
    rows = {"x": torch.zeros(2, 3)}
    sent = frame(rows, round=t, superstep=superstep, sender=sender, run=run)
    assert len(encode(sent)) == frame_size("send", schema_of(rows))
    got = decode(encode(sent))
    assert (got.round, got.superstep, got.sender, got.run) == (t, superstep, sender, run)


@given(st.lists(st.floats(width=32), min_size=6, max_size=6))
def test_the_size_does_not_depend_on_the_values(values: list[float]) -> None:
    rows = {"x": torch.tensor(values).view(2, 3)}
    assert len(encode(frame(rows))) == frame_size("send", schema_of(rows))


@pytest.mark.parametrize("size", range(len(VALID)))
def test_a_frame_cut_short_anywhere_is_refused(size: int) -> None:
    with pytest.raises(WireError):
        decode(VALID[:size])


def test_a_frame_with_something_behind_it_is_refused() -> None:
    with pytest.raises(WireError, match="announced"):
        decode(VALID + b"\0")


def test_another_magic_is_refused() -> None:
    with pytest.raises(WireError, match="not a frame: it starts with b'HTTP'"):
        decode(b"HTTP" + VALID[4:])


@pytest.mark.parametrize(("head", "body"), [(2**32 - 1, 0), (0, 2**64 - 1), (65537, 0)])
def test_announced_lengths_beyond_the_limits_are_refused(head: int, body: int) -> None:
    with pytest.raises(WireError, match="frame too large"):
        decode(struct.pack(">4sIQ", MAGIC, head, body))


def test_limits_are_those_of_the_reader() -> None:
    assert decode(VALID, Limits(body=1000)).sender == 5
    with pytest.raises(WireError, match="frame too large"):
        decode(VALID, Limits(body=10))
    with pytest.raises(WireError, match="frame too large"):
        decode(VALID, Limits(header=10))
    with pytest.raises(WireError, match="2 tensors in one frame; at most 1"):
        decode(VALID, Limits(tensors=1))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (header(version=2), "version 2 is not 1"),
        (header(version="1"), "wrong type"),
        (header(run=b"short"), "wrong length"),
        (header(where=bytes(23)), "wrong length"),
        (header(kind=7), "wrong type"),
        (header(schema={}), "wrong type"),
        (header(more=1), "expected fields"),
        ({"version": 1}, "expected fields"),
        ([1, 2], "expected fields"),
        (None, "expected fields"),
        (b"\xc1", "unreadable header"),
        (b"\x91" * 60_000, "unreadable header"),
        (b"", "unreadable header"),
        (header(schema=[["x", "float32"]]), "not \\(name, type, shape\\)"),
        (header(schema=["x"]), "not \\(name, type, shape\\)"),
        (header(schema=[["x", "complex64", [1]]]), "unknown"),
        (header(schema=[[1, "float32", [1]]]), "malformed"),
        (header(schema=[["x", "float32", 1]]), "malformed"),
        (header(schema=[["x", "float32", [-1]]]), "malformed"),
        (header(schema=[["x", "float32", [True]]]), "malformed"),
        (header(schema=[["x", "float32", [1] * 9]]), "malformed"),
        (header(schema=[["x", "float32", [2**64 - 1]]]), "unreadable body"),
    ],
)
def test_a_malformed_header_is_refused(bad: Any, words: str) -> None:
    with pytest.raises(WireError, match=words):
        decode(pack(bad))


@pytest.mark.parametrize("dtype", [[], {}])
def test_a_type_that_is_no_string_is_refused(dtype: Any) -> None:
    with pytest.raises(WireError):
        decode(pack(header(schema=[["x", dtype, [1]]])))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(WireError):
        decode(pack(header(kind="order")))


@pytest.mark.parametrize(
    "schema",
    [
        [["y", "float32", [2]]],
        [["x", "float64", [2]]],
        [["x", "float32", [3]]],
        [["x", "float32", [2, 1]]],
        [["x", "float32", [2]], ["y", "float32", [2]]],
    ],
)
def test_a_body_that_does_not_hold_what_the_schema_says_is_refused(schema: list[Any]) -> None:
    body = safetensors.torch.save({"x": torch.zeros(2)})
    with pytest.raises(WireError, match="does not hold what the schema says"):
        decode(pack(header(schema=schema), body))


def test_a_body_without_a_schema_is_refused() -> None:
    body = safetensors.torch.save({"x": torch.zeros(2)})
    with pytest.raises(WireError, match="without schema"):
        decode(pack(header(), body))


@pytest.mark.parametrize("body", [b"", b"garbage", bytes(8), b"\xff" * 40])
def test_a_body_that_is_no_safetensors_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="unreadable body"):
        decode(pack(header(schema=[["x", "float32", [2]]]), body))


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


def test_a_mailbox_gives_its_frames_once_and_in_order() -> None:
    link = MemoryLink()
    link.send(1, b"a")
    link.send(2, b"b")
    link.send(1, b"c")
    assert link.receive(1) == [b"a", b"c"]
    assert link.receive(1) == []
    assert link.receive(2) == [b"b"]
