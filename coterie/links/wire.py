"""Frames: how rows travel between peers. Sizes and schema are checked before anything is built.

    b"COT1" | header length (4 bytes) | body length (8) | header (msgpack) | body (safetensors)

Numbers in the header have a fixed width, so that the size of a frame depends on its schema alone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack
import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

MAGIC = b"COT1"
VERSION = 1
_DATA = ("send", "offer", "ask", "seal")
KINDS = (*_DATA, "hello", "welcome", "at", "bye", "gone")  # from "hello" on: control
_PRELUDE = struct.Struct(">4sIQ")
_WHERE = struct.Struct(">qqq")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    )
}

_CODES = dict(  # the same types as safetensors names them
    zip(_DTYPES, ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL"), strict=True)
)
_VALUES = struct.Struct("<Q")  # safetensors: how long the description before the values is

Schema = tuple[tuple[str, str, tuple[int, ...]], ...]  # name, type, shape
ANY = -1  # rows of an expected schema whose number is not known in advance


class WireError(ValueError):
    """A frame that is not what it should be."""


@dataclass(frozen=True)
class Limits:
    """What a frame may hold at most."""

    header: int = 64 << 10  # bytes
    body: int = 1 << 30  # bytes
    tensors: int = 64
    tensor: int = 1 << 30  # bytes of one tensor

    @property
    def frame(self) -> int:
        """Bytes of the largest frame."""
        return _PRELUDE.size + self.header + self.body

    @classmethod
    def up_to(cls, values: int) -> Limits:
        """Of frames that hold so many bytes of values, in whatever shapes."""
        return cls(body=_VALUES.size + cls.header + values, tensor=values)


@dataclass(frozen=True)
class Frame:
    """Rows of one node for one superstep of one round."""

    run: bytes  # 16 bytes that name the run
    round: int
    superstep: int
    sender: int  # key of the node
    kind: str  # one of KINDS
    rows: Mapping[str, Tensor]


@dataclass(frozen=True)
class Header:
    """What a frame says about itself before its body is read."""

    run: bytes
    round: int
    superstep: int
    sender: int
    kind: str
    schema: Schema


def schema_of(rows: Mapping[str, Tensor]) -> Schema:
    """Names, types and shapes of rows."""
    return tuple((n, str(r.dtype).removeprefix("torch."), tuple(r.shape)) for n, r in rows.items())


def unshared(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rows as safetensors takes them: on the CPU, contiguous, no two in the same memory."""
    made: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in rows.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        made[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return made


def encode(frame: Frame) -> bytes:
    """A frame as bytes."""
    rows = unshared(frame.rows)
    header: bytes = msgpack.packb(
        {
            "version": VERSION,
            "run": frame.run,
            "where": _WHERE.pack(frame.round, frame.superstep, frame.sender),
            "kind": frame.kind,
            "schema": [[name, dtype, list(shape)] for name, dtype, shape in schema_of(rows)],
        }
    )
    body: bytes = safetensors.torch.save(rows) if rows else b""
    return _PRELUDE.pack(MAGIC, len(header), len(body)) + header + body


def peek(data: bytes, limits: Limits | None = None) -> Header:
    """The header of a frame, its body unread; WireError where it is not valid."""
    limits = limits or Limits()
    header = _header(_cut(data, limits)[0])
    t, superstep, sender = _WHERE.unpack(header["where"])
    schema = _schema(header["schema"], limits)
    return Header(header["run"], t, superstep, sender, header["kind"], schema)


def decode(data: bytes, limits: Limits | None = None, expected: Schema | None = None) -> Frame:
    """The frame in these bytes; WireError where they are not exactly one valid frame."""
    limits = limits or Limits()
    head = peek(data, limits)
    if expected is not None:
        check(head, expected)
    rows = _rows(_cut(data, limits)[1], head.schema, limits)
    return Frame(head.run, head.round, head.superstep, head.sender, head.kind, rows)


def check(frame: Frame | Header, expected: Schema) -> None:
    """WireError unless a frame has the names, types and shapes that are expected of it.

    `ANY` as the first number of an expected shape stands for any number of rows.
    """
    schema = frame.schema if isinstance(frame, Header) else schema_of(frame.rows)
    found = {name: (dtype, shape) for name, dtype, shape in schema}
    if set(found) != {name for name, _, _ in expected}:
        want = ", ".join(name for name, _, _ in expected)
        raise WireError(f"a frame has the names {', '.join(found)!r:.200}, not {want!r}")
    for name, dtype, shape in expected:
        if found[name][0] != dtype or not _fits(found[name][1], shape):
            got = f"{found[name][0]} {list(found[name][1])}"
            raise WireError(f"{name!r} is {got} in a frame, not {dtype} {list(shape)}")


def finite(frame: Frame) -> None:
    """WireError if a frame holds a number that is not finite: it would spread to everybody."""
    for name, rows in frame.rows.items():
        if rows.is_floating_point() and not bool(torch.isfinite(rows).all()):
            raise WireError(f"{name!r} holds NaN or infinity")


def _fits(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    if expected[:1] == (ANY,):
        return len(shape) == len(expected) and shape[1:] == expected[1:]
    return shape == expected


def _bytes(entry: tuple[str, str, tuple[int, ...]]) -> int:
    return math.prod(entry[2]) * _DTYPES[entry[1]].itemsize  # of Python numbers: no overflow


def _cut(data: bytes, limits: Limits) -> tuple[bytes, memoryview]:
    if len(data) < _PRELUDE.size:
        raise WireError(f"a frame has at least {_PRELUDE.size} bytes, got {len(data)}")
    magic, header, body = _PRELUDE.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"not a frame: it starts with {magic!r}")
    if header > limits.header or body > limits.body:
        raise WireError(f"frame too large: header {header}, body {body} bytes")
    if len(data) != _PRELUDE.size + header + body:
        raise WireError(
            f"frame of {_PRELUDE.size + header + body} bytes announced, {len(data)} came"
        )
    start = _PRELUDE.size + header
    return data[_PRELUDE.size : start], memoryview(data)[start:]


def _header(data: bytes) -> dict[str, Any]:
    try:
        header = msgpack.unpackb(data, strict_map_key=True, max_map_len=16)
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"unreadable header: {error}") from None
    expected = {"version": int, "run": bytes, "where": bytes, "kind": str, "schema": list}
    if not isinstance(header, dict) or set(header) != set(expected):
        raise WireError("the header does not have the expected fields")
    if any(not isinstance(header[key], kind) for key, kind in expected.items()):
        raise WireError("a header field has the wrong type")
    if header["version"] != VERSION:
        raise WireError(f"version {header['version']} is not {VERSION}")
    if header["kind"] not in KINDS:
        raise WireError(f"unknown kind {header['kind']!r:.40}")
    if len(header["run"]) != 16 or len(header["where"]) != _WHERE.size:
        raise WireError("a header field has the wrong length")
    return header


def _schema(entries: list[Any], limits: Limits) -> Schema:
    if len(entries) > limits.tensors:
        raise WireError(f"{len(entries)} tensors in one frame; at most {limits.tensors}")
    schema = tuple(_entry(entry, limits) for entry in entries)
    if len({name for name, _, _ in schema}) < len(schema):
        raise WireError("two tensors of a frame have the same name")
    return schema


def _entry(entry: Any, limits: Limits) -> tuple[str, str, tuple[int, ...]]:
    if not isinstance(entry, list) or len(entry) != 3:
        raise WireError("a schema entry is not (name, type, shape)")
    name, dtype, shape = entry
    if not isinstance(name, str) or not isinstance(dtype, str) or not isinstance(shape, list):
        raise WireError(f"a schema entry is malformed: {entry!r:.80}")
    if dtype not in _DTYPES:
        raise WireError(f"the type of {name!r:.40} is unknown: {dtype!r:.40}")
    if len(shape) > 8 or any(type(size) is not int or size < 0 for size in shape):
        raise WireError(f"the shape of {name!r:.40} is malformed")
    solid = tuple(max(size, 1) for size in shape)  # no rows of impossible length either
    if (size := _bytes((name, dtype, solid))) > limits.tensor:
        raise WireError(f"{name!r:.40} would take {size} bytes; at most {limits.tensor}")
    return name, dtype, tuple(shape)


def _rows(body: memoryview, schema: Schema, limits: Limits) -> dict[str, Tensor]:
    if not schema:
        if len(body):
            raise WireError("a frame without schema has a body")
        return {}
    _check_values(body, schema, limits)
    try:
        views = dict(safetensors.deserialize(bytes(body)))
    except (SafetensorError, ValueError) as error:
        raise WireError(f"unreadable body: {error}") from None
    found = {name: (view["dtype"], tuple(view["shape"])) for name, view in views.items()}
    if found != {name: (_CODES[dtype], shape) for name, dtype, shape in schema}:
        raise WireError("the body does not hold what the schema says")
    return {name: _tensor(views[name]["data"], dtype, shape) for name, dtype, shape in schema}


def _tensor(data: bytearray, dtype: str, shape: tuple[int, ...]) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=_DTYPES[dtype])
    return torch.frombuffer(data, dtype=_DTYPES[dtype]).reshape(shape)


def _check_values(body: memoryview, schema: Schema, limits: Limits) -> None:
    """Whether a body has as many bytes of values as the schema says, before it is parsed."""
    if len(body) < _VALUES.size:
        raise WireError(f"unreadable body: it has {len(body)} bytes")
    (words,) = _VALUES.unpack_from(body)
    values = len(body) - _VALUES.size - words
    if values < 0 or words > limits.header:
        raise WireError(f"unreadable body: {words} of its {len(body)} bytes describe it")
    wanted = sum(map(_bytes, schema))
    if values != wanted:
        raise WireError(
            f"the body does not hold what the schema says: {values} bytes instead of {wanted}"
        )


@lru_cache(maxsize=256)
def frame_size(kind: str, schema: Schema) -> int:
    """How many bytes a frame with this schema takes."""
    rows = {name: torch.zeros(shape, dtype=_DTYPES[dtype]) for name, dtype, shape in schema}
    return len(encode(Frame(bytes(16), 0, 0, 0, kind, rows)))
