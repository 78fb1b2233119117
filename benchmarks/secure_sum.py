"""What does a secure sum cost beside a plain one: time and bytes, one member group, loopback?

    python benchmarks/secure_sum.py [--members 3] [--parameters 1000000] [--repeat 5]

Every letter crosses a TCP connection on loopback, to members that run side by side as threads. The
plain exchange sends each member's float32 vector as one frame of the wire format and adds them up.
Prints medians (where the machine has other work, the processor time is the one to
read), the ratios, then JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from coterie.links import keys, wire
from coterie.links.collector import Collector
from coterie.links.letters import Identity, Session
from coterie.links.secure import Member, Register

_SIZE = struct.Struct(">Q")
Answer = Callable[[bytes], bytes]


def put(line: socket.socket, data: bytes) -> None:
    line.sendall(_SIZE.pack(len(data)))
    line.sendall(data)


def take(line: socket.socket) -> bytes:
    (size,) = _SIZE.unpack(_exactly(line, _SIZE.size))
    return _exactly(line, size)


def _exactly(line: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        view = view[line.recv_into(view) :]
    return bytes(data)


def serve(line: socket.socket, answer: Answer, letters: int) -> None:
    for _ in range(letters):
        put(line, answer(take(line)))


def lines(
    answers: list[Answer], letters: int
) -> tuple[list[socket.socket], list[threading.Thread]]:
    """A connection to each member, which answers in a thread of its own."""
    ours, threads = [], []
    with socket.create_server(("127.0.0.1", 0)) as server:
        for answer in answers:
            ours.append(socket.create_connection(server.getsockname()))
            theirs, _ = server.accept()
            for line in (ours[-1], theirs):  # else short letters wait 40 ms, as over no real link
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threads.append(threading.Thread(target=serve, args=(theirs, answer, letters)))
            threads[-1].start()
    return ours, threads


def secure(identities: list[Identity], session: Session, vectors: list[np.ndarray]) -> dict:
    """Seconds, bytes and the sum of one secure aggregation."""
    members = [
        Member(identities[peer], Register(), [vectors[peer].astype(np.float64)])
        for peer in session.group
    ]
    ours, threads = lines([member.hear for member in members], 5)
    begin, used, count = time.perf_counter(), time.process_time(), 0
    collector = Collector(identities[session.requester], session)
    letters = collector.begin()
    while letters:
        for peer, data in letters.items():
            put(ours[peer], data)
        for peer, data in letters.items():
            answer = take(ours[peer])
            count += len(data) + len(answer)
            collector.hear(peer, answer)
        letters = collector.advance()
    assert collector.result is not None
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    close(ours, threads)
    return {"seconds": seconds, "cpu": used, "bytes": count, "sum": collector.result.parts[0]}


def plain(vectors: list[np.ndarray]) -> dict:
    """The same of frames in the clear."""

    def answer(vector: np.ndarray) -> Answer:
        rows = {"params": torch.from_numpy(vector)[None]}
        return lambda _: wire.encode(wire.Frame(bytes(16), 0, 0, 0, "offer", rows))

    ours, threads = lines([answer(vector) for vector in vectors], 1)
    begin, used, count = time.perf_counter(), time.process_time(), 0
    ask = wire.encode(wire.Frame(bytes(16), 0, 0, 0, "ask", {}))
    for line in ours:
        put(line, ask)
    total = torch.zeros(1, len(vectors[0]))
    for line in ours:
        data = take(line)
        count += len(ask) + len(data)
        total += wire.decode(data).rows["params"]
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    close(ours, threads)
    return {"seconds": seconds, "cpu": used, "bytes": count, "sum": total[0].numpy()}


def close(ours: list[socket.socket], threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
    for line in ours:
        line.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    group = tuple(range(options.members))
    pairs = [keys.make() for _ in range(options.members + 1)]
    known = {peer: pair.certificate for peer, pair in enumerate(pairs)}
    identities = [Identity(peer, pair.key, known) for peer, pair in enumerate(pairs)]
    random = np.random.default_rng(1)
    vectors = [random.normal(size=options.parameters).astype(np.float32) for _ in group]
    found: dict[str, list[dict]] = {"plain": [], "secure": []}
    for t in range(options.repeat):
        found["plain"].append(plain(vectors))
        session = Session(
            *(bytes(16), t, 0, options.members, group, options.members // 2 + 1),
            *((options.parameters,), t.to_bytes(16, "big")),
        )
        found["secure"].append(secure(identities, session, vectors))
    gap = float(np.abs(found["plain"][0]["sum"] - found["secure"][0]["sum"]).max())
    seconds, cpu = (
        {way: statistics.median(one[key] for one in runs) for way, runs in found.items()}
        for key in ("seconds", "cpu")
    )
    sizes = {way: runs[0]["bytes"] for way, runs in found.items()}
    for way in found:
        print(
            f"{way:>7}: {1000 * seconds[way]:>8.1f} ms, {1000 * cpu[way]:.1f} ms of processor "
            f"time, {sizes[way]:,} bytes"
        )
    ratios = {
        f"{name}_ratio": values["secure"] / values["plain"]
        for name, values in (("time", seconds), ("cpu", cpu), ("bytes", sizes))
    }
    told = ", ".join(f"{name} {value:.4g}" for name, value in ratios.items())
    print(f"{told} (largest difference of the sums {gap:.1e})")
    machine = platform.processor() or platform.machine()
    print(json.dumps({"benchmark": "secure_sum", "machine": machine, **vars(options), **ratios}))


if __name__ == "__main__":
    main()
