"""How a frame is cut into the messages of a stream, and put together again in bounded memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from coterie.links.wire import WireError

START = struct.Struct(">QQ")  # the number of a frame and its length, before its first bytes
WELCOME = struct.Struct(">QQ")  # the last frame that arrived before, and the largest that may come
ARRIVED = struct.Struct(">Q")  # the number of a frame that was handed over
SMALLEST = 16 << 10  # bytes of a chunk that is not the last: many tiny ones would cost memory


def split(number: int, frame: bytes, size: int) -> Iterator[bytes]:
    """The messages that carry a frame, `size` bytes of it in each."""
    yield START.pack(number, len(frame)) + frame[:size]
    for begin in range(size, len(frame), size):
        yield frame[begin : begin + size]


@dataclass
class Assembler:
    """Puts frames together; refuses what is larger than announced or announced too large."""

    limit: int  # bytes of a frame
    number: int = 0  # of the frame that is being put together, or of the last one
    _missing: int = 0
    _parts: list[bytes] = field(default_factory=list)

    def add(self, message: bytes) -> bytes | None:
        """The frame that this message completes, if it does."""
        part = message if self._missing else self._begin(message)
        if len(part) > self._missing:
            raise WireError(f"frame {self.number} is longer than announced")
        if len(part) < min(self._missing, SMALLEST):
            raise WireError(f"a chunk of {len(part)} bytes; at least {SMALLEST} are expected")
        self._missing -= len(part)
        self._parts.append(part)
        return None if self._missing else self._finish()

    def _begin(self, message: bytes) -> bytes:
        if len(message) < START.size:
            raise WireError(f"a frame begins with {START.size} bytes, got {len(message)}")
        number, length = START.unpack_from(message)
        if number <= self.number:
            raise WireError(f"frame {number} came after frame {self.number}")
        if not 0 < length <= self.limit:
            raise WireError(f"a frame of {length} bytes announced; at most {self.limit} may come")
        self.number, self._missing = number, length
        return message[START.size :]

    def _finish(self) -> bytes:
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)
