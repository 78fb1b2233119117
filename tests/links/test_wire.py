import contextlib
import math
import struct
from typing import Any

import msgpack
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.links.memory import MemoryLink
from coterie.links.wire import (
    _DTYPES,
    ANY,
    MAGIC,
    Frame,
    Limits,
    Schema,
    WireError,
    check,
    decode,
    encode,
    finite,
    frame_size,
    peek,
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
        (header(schema=[["x", "float32", [2**64 - 1]]]), "would take 73786976294838206460 bytes"),
        (header(schema=[["x", "float32", [2**62] * 8]]), "would take .* at most 1073741824"),
        (header(schema=[["x", "float32", [0, 2**62]]]), "would take"),
        (header(schema=[["x", "float32", [0]], ["x", "bool", [0]]]), "have the same name"),
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


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "unreadable body: it has 0 bytes"),
        (b"garbage", "unreadable body: it has 7 bytes"),
        (b"\xff" * 40, "unreadable body: 18446744073709551615 of its 40 bytes"),
        (bytes(8), "0 bytes instead of 8"),
        (bytes(16), "unreadable body"),
        (struct.pack("<Q", 4) + b"nope" + bytes(8), "unreadable body"),
    ],
)
def test_a_body_that_is_no_safetensors_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        decode(pack(header(schema=[["x", "float32", [2]]]), body))


def test_a_long_description_of_the_body_is_refused_before_it_is_parsed() -> None:
    words = b'{"__metadata__":{"a":"' + b"x" * 70_000 + b'"}}'
    body = struct.pack("<Q", len(words)) + words + bytes(8)
    with pytest.raises(WireError, match="bytes describe it"):
        decode(pack(header(schema=[["x", "float32", [2]]]), body))


@pytest.mark.parametrize("size", [2**62, 2**63, 2**64 - 1, 7])
def test_a_body_without_rows_of_another_length_is_refused(size: int) -> None:
    words = b'{"x":{"dtype":"F32","shape":[0,%d],"data_offsets":[0,0]}}' % size
    body = struct.pack("<Q", len(words)) + words
    with pytest.raises(WireError, match=r"unreadable body|does not hold what the schema says"):
        decode(pack(header(schema=[["x", "float32", [0, 8]]]), body))


EXPECTED: Schema = (("params", "float32", (2, 3)), ("choice", "int64", (ANY,)))


def test_a_frame_that_is_what_was_expected_passes() -> None:
    got = decode(VALID, expected=EXPECTED)
    check(got, EXPECTED)
    check(got, tuple(reversed(EXPECTED)))
    check(peek(VALID), EXPECTED)
    finite(got)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ((), "the names 'params, choice', not ''"),
        (EXPECTED[:1], "the names 'params, choice', not 'params'"),
        (
            (("params", "float64", (2, 3)), EXPECTED[1]),
            "float32 \\[2, 3\\] in a frame, not float64",
        ),
        ((("params", "float32", (3, 3)), EXPECTED[1]), "not float32 \\[3, 3\\]"),
        ((("params", "float32", (ANY, 4)), EXPECTED[1]), "not float32 \\[-1, 4\\]"),
        ((("params", "float32", (ANY,)), EXPECTED[1]), "not float32 \\[-1\\]"),
        ((EXPECTED[0], ("choice", "int64", ())), "not int64 \\[\\]"),
    ],
)
def test_a_frame_that_is_not_what_was_expected_is_refused(expected: Schema, words: str) -> None:
    with pytest.raises(WireError, match=words):
        decode(VALID, expected=expected)
    with pytest.raises(WireError, match=words):
        check(decode(VALID), expected)


def test_what_was_expected_is_checked_before_the_body_is_parsed() -> None:
    broken = VALID[:-40] + b"\xff" * 40
    with pytest.raises(WireError, match="the names"):
        decode(broken, expected=())


@pytest.mark.parametrize("dtype", [d for d in _DTYPES.values() if d.is_floating_point], ids=str)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_found(dtype: torch.dtype, value: float) -> None:
    rows = torch.zeros(2, 3, dtype=dtype)
    finite(frame({"choice": torch.tensor([1]), "params": rows, "none": rows[:0]}))
    rows[1, 2] = value
    with pytest.raises(WireError, match="'params' holds NaN or infinity"):
        finite(frame({"choice": torch.tensor([1]), "params": rows}))


SCHEMAS = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__"),
        st.sampled_from(sorted(_DTYPES)),
        st.lists(st.integers(0, 3), max_size=3).map(tuple),
    ),
    max_size=12,
    unique_by=lambda entry: entry[0],
).map(tuple)


def zeros(schema: Schema) -> dict[str, Tensor]:
    return {name: torch.zeros(shape, dtype=_DTYPES[dtype]) for name, dtype, shape in schema}


@given(SCHEMAS)
def test_limits_made_for_so_many_bytes_let_frames_pass_that_hold_them(schema: Schema) -> None:
    rows = zeros(schema)
    data = encode(frame(rows))
    solid = 8 * 3**3  # bytes of the largest of these tensors
    limits = Limits.up_to(max(sum(row.nbytes for row in rows.values()), solid))
    assert len(data) <= limits.frame
    assert schema_of(decode(data, limits, schema).rows) == schema


def test_limits_made_for_so_many_bytes_are_not_much_larger() -> None:
    limits = Limits.up_to(4_000_000)
    assert 4_000_000 == limits.tensor < limits.body < limits.frame < 4_000_000 + (130 << 10)
    more = {"params": torch.zeros(1, 1_000_001)}
    with pytest.raises(WireError, match="'params' would take 4000004 bytes; at most 4000000"):
        decode(encode(frame(more)), limits)


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


def test_a_mailbox_gives_its_frames_once_and_in_order() -> None:
    link = MemoryLink()
    link.send(1, b"a")
    link.send(2, b"b")
    link.send(1, b"c")
    assert link.receive(1) == [b"a", b"c"]
    assert link.receive(1) == []
    assert link.receive(2) == [b"b"]
