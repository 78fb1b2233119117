"""Frames and schemas for the tests of the wire format."""

import struct
from typing import Any

import msgpack
import torch
from hypothesis import strategies as st
from torch import Tensor

from coterie.links.wire import (
    _DTYPES,
    MAGIC,
    Frame,
    Schema,
    encode,
)

RUN = bytes(range(16))


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
