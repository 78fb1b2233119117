"""Frames: what goes in comes out, sizes follow from schemas, and what was expected is checked."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.links.wire import (
    _DTYPES,
    ANY,
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
from tests.links.frames import RUN, SCHEMAS, VALID, frame, zeros

SHAPES = [(), (0,), (0, 3), (3,), (2, 0), (2, 3, 4)]


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
