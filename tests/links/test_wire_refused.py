"""Frames that are not exactly one valid frame are refused, before anything is built."""

import struct
from typing import Any

import pytest
import safetensors.torch
import torch

from coterie.links.wire import (
    MAGIC,
    Limits,
    WireError,
    decode,
)
from tests.links.frames import VALID, header, pack


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
