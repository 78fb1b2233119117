"""Does any of a million damaged frames crash the parser, hold it up, or make it take memory?

    python benchmarks/fuzz_wire.py [--frames 1000000] [--seed 0] [--spare 64]

Valid frames are damaged at random: bits, bytes, pieces, the lengths in front, the header and the
description of the body (put back under lengths that agree, so that the inside is reached). Each
must be read within the limits or refused with a WireError, under an alarm of 5 seconds and with
`spare` MB of address space beyond what the process holds after a warm-up. Prints how many were
read and why others were refused, the slowest, the memory, and JSON; a failure shows its bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import re
import resource
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import torch

from coterie.links.wire import Frame, Limits, WireError, decode, encode, schema_of

LIMITS = Limits(header=2048, body=8192, tensors=8, tensor=4096)
EDGES = (0, 1, 7, 8, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
ALARM = 5  # seconds
Damage = Callable[[random.Random, bytes], bytes]


def valid_frames() -> list[bytes]:
    """What peers send: models, choices, questions, no rows at all."""
    some: list[tuple[str, dict[str, torch.Tensor]]] = [
        ("send", {"params": torch.randn(1, 50)}),
        ("send", {"core": torch.randn(2, 40), "head": torch.randn(2, 9), "choice": torch.ones(2)}),
        ("offer", {"params": torch.randn(1, 20).double(), "mark": torch.zeros(1, 16).byte()}),
        ("offer", {"half": torch.randn(3, 4).half(), "on": torch.ones(3, dtype=torch.bool)}),
        (
            "send",
            {"none": torch.zeros(0, 7), "one": torch.tensor(1), "b": torch.ones(2).bfloat16()},
        ),
        ("ask", {}),
    ]
    return [encode(Frame(bytes(range(16)), 3, 1, 5, kind, rows)) for kind, rows in some]


def cut(data: bytes) -> tuple[bytes, bytes]:
    """Header and body of a frame."""
    head = min(struct.unpack_from(">I", data, 4)[0], len(data) - 16) if len(data) >= 16 else 0
    return data[16 : 16 + head], data[16 + head :]


def framed(head: bytes, body: bytes) -> bytes:
    return struct.pack(">4sIQ", b"COT1", len(head), len(body)) + head + body


def flip(pick: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(pick.choice((1, 1, 2, 8))):
        if made:
            made[pick.randrange(len(made))] ^= 1 << pick.randrange(8)
    return bytes(made)


def overwrite(pick: random.Random, data: bytes) -> bytes:
    place = pick.randrange(len(data) + 1)
    new = pick.randbytes(pick.randrange(1, 9))
    return data[:place] + new + data[place + len(new) :]


def move(pick: random.Random, data: bytes) -> bytes:
    """Cut off, leave out, double or insert a piece."""
    first, second = pick.randrange(len(data) + 1), pick.randrange(len(data) + 1)
    more = pick.choice((b"", data[second : second + 40], pick.randbytes(pick.randrange(20))))
    return data[:first] + more + data[pick.choice((first, second, len(data))) :]


def lengths(pick: random.Random, data: bytes) -> bytes:
    """Wrong numbers where a parser looks for lengths."""
    place = pick.choice((4, 8, 16 + len(cut(data)[0])))
    form = pick.choice((">I", ">Q", "<Q"))
    new = struct.pack(form, pick.choice(EDGES) % 2 ** (8 * struct.calcsize(form)))
    return data[:place] + new + data[place + len(new) :]


def inside(pick: random.Random, data: bytes) -> bytes:
    """Damage to the header or the body alone, under lengths that agree."""
    head, body = cut(data)
    change = pick.choice((flip, overwrite, move))
    return (
        framed(change(pick, head), body)
        if pick.random() < 0.5
        else framed(head, change(pick, body))
    )


def schema(pick: random.Random, data: bytes) -> bytes:
    """A header that parses, with other values in it."""
    head, body = cut(data)
    try:
        fields = msgpack.unpackb(head)
        entry = pick.choice(fields["schema"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, msgpack.UnpackException):
        return flip(pick, data)
    values: list[Any] = [*EDGES, -1, "", "float32", "complex64", [], None, True, b"\xff" * 9, 1.5]
    if pick.random() < 0.3:
        fields[pick.choice(list(fields))] = pick.choice(values)
    elif isinstance(entry, list) and entry:
        entry[pick.randrange(len(entry))] = pick.choice([*values, pick.choices(EDGES, k=3), [-1]])
    return framed(msgpack.packb(fields), body)


def description(pick: random.Random, data: bytes) -> bytes:
    """A body whose JSON parses, with other numbers in it."""
    head, body = cut(data)
    numbers = list(re.finditer(rb"(?<=[\[,])\d+(?=[\],])", body[8:]))
    if not numbers:
        return flip(pick, data)
    place = pick.choice(numbers)
    words = body[8 : 8 + place.start()] + str(pick.choice(EDGES)).encode() + body[8 + place.end() :]
    grown = len(words) - len(body[8:])
    (length,) = struct.unpack_from("<Q", body)
    return framed(head, struct.pack("<Q", (length + grown) % 2**64) + words)


DAMAGES: tuple[Damage, ...] = (flip, overwrite, move, lengths, inside, schema, description)


def damaged(pick: random.Random, sources: list[bytes]) -> bytes:
    data = pick.choice(sources)
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        data = pick.choice(DAMAGES)(pick, data)
    return data


def outcome(data: bytes) -> str:
    """What became of a frame; raises for what must not happen."""
    try:
        got = decode(data, LIMITS)
    except WireError as error:
        plain = re.sub(r"'.*?'|\".*?\"|-?\d+", "…", str(error), flags=re.DOTALL)
        return plain.split(":")[0][:50]  # without what differs each time
    assert sum(rows.nbytes for rows in got.rows.values()) <= LIMITS.body
    assert schema_of(decode(encode(got)).rows) == schema_of(got.rows)
    return "read"


def too_slow(*signal_and_frame: object) -> None:
    raise TimeoutError(f"a frame took more than {ALARM} seconds")


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spare", type=int, default=64, help="MB that the parser may take at most")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pick, sources = random.Random(options.seed), valid_frames()
    for _ in range(2000):  # libraries load what they need
        outcome(damaged(pick, sources))
    gc.collect()
    gc.freeze()  # a collection would look like a slow frame
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "linux":
        ceiling = address_space() + options.spare * 1_000_000
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    signal.signal(signal.SIGALRM, too_slow)
    counts, slowest, spent = fuzz(options.frames, pick, sources)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    show(counts, slowest, spent, grown)


def fuzz(
    frames: int, pick: random.Random, sources: list[bytes]
) -> tuple[Counter[str], float, float]:
    counts: Counter[str] = Counter()
    slowest, began = 0.0, time.perf_counter()
    for number in range(frames):
        data = damaged(pick, sources)
        signal.setitimer(signal.ITIMER_REAL, ALARM)
        start = time.thread_time()  # other programs may hold us up as they like
        try:
            counts[outcome(data)] += 1
        except BaseException:
            print(f"frame {number} failed: {data.hex()}", file=sys.stderr)
            raise
        slowest = max(slowest, time.thread_time() - start)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return counts, slowest, time.perf_counter() - began


def show(counts: Counter[str], slowest: float, spent: float, grown: float) -> None:
    for text, count in counts.most_common():
        print(f"{count:>9}  {text}")
    total = counts.total()
    print(f"{total} frames in {spent:.0f} s, none crashed or hung")
    print(f"slowest: {1000 * slowest:.1f} ms; memory grew by {grown:.1f} MB")
    said = {"frames": total, "read": counts["read"], "slowest_ms": round(1000 * slowest, 2)}
    print(json.dumps({**said, "grown_MB": round(grown, 1), "seconds": round(spent, 1)}))


if __name__ == "__main__":
    main()
