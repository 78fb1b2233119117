"""How fast do models of 100 MB travel over the gRPC link, beside a raw socket?

    python benchmarks/link_speed.py [--megabytes 100] [--frames 5] [--repeat 5]

Two processes on this machine: one sends frames one after the other, the other takes each whole and
confirms it. The baselines are blocking sockets, without and with TLS (the same mutually checked
certificates), that do nothing but that. The four take turns, so that a busy moment hits all alike.
Prints a table, the ratios of gRPC to the raw socket with the same protection, and JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import multiprocessing
import os
import platform
import socket
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coterie.links import keys
from coterie.links.grpc_link import GrpcLink
from coterie.links.grpc_setup import Settings
from coterie.links.keys import NAME, Keys
from coterie.links.ports import reserved_ports
from coterie.links.roster import PeerEntry, Roster

LENGTH = struct.Struct(">Q")
Send = Callable[[bytes, int], float]  # a frame and how often: seconds


def context(side: int, folder: Path, own: str, other: str) -> ssl.SSLContext:
    """TLS for a raw socket with the same certificates as the link's."""
    made = ssl.SSLContext(side)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(folder / f"{own}.crt", folder / f"{own}.key")
    made.load_verify_locations(folder / f"{other}.crt")
    return made


def take(line: socket.socket) -> bytearray | None:
    """One frame from a raw socket."""
    head = line.recv(LENGTH.size, socket.MSG_WAITALL if not isinstance(line, ssl.SSLSocket) else 0)
    if not head:
        return None
    buffer = bytearray(LENGTH.unpack(head)[0])
    view = memoryview(buffer)
    while view:
        view = view[line.recv_into(view) :]
    return buffer


def raw_receiver(port: int, folder: Path | None, ready: Any) -> None:
    """Take frames from one connection after the other and confirm each."""
    with socket.create_server(("127.0.0.1", port)) as server:
        ready.set()
        line, _ = server.accept()
        if folder:
            line = context(ssl.PROTOCOL_TLS_SERVER, folder, "b", "a").wrap_socket(line, True)
        with line:
            while take(line) is not None:
                line.sendall(b"k")


@contextlib.contextmanager
def raw_sender(port: int, folder: Path | None) -> Iterator[Send]:
    """Send frames over a raw socket."""
    with socket.create_connection(("127.0.0.1", port)) as plain:
        line: socket.socket = plain
        if folder:
            made = context(ssl.PROTOCOL_TLS_CLIENT, folder, "a", "b")
            line = made.wrap_socket(plain, server_hostname=NAME)

        def send(frame: bytes, times: int) -> float:
            began = time.perf_counter()
            for _ in range(times):
                line.sendall(LENGTH.pack(len(frame)))
                line.sendall(frame)
                assert line.recv(1) == b"k"
            return time.perf_counter() - began

        yield send
        line.close()


def roster(ports: tuple[int, int], folder: Path | None) -> Roster:
    """The two peers of the link."""
    entries = []
    for peer, name in enumerate("ab"):
        key = read(folder, name)
        proof = (key.fingerprint, key.certificate) if key else ("", b"")
        entries.append(PeerEntry(peer, f"127.0.0.1:{ports[peer]}", *proof))
    return Roster(tuple(entries))


def read(folder: Path | None, name: str) -> Keys | None:
    return keys.read(folder / f"{name}.key", folder / f"{name}.crt") if folder else None


def grpc_receiver(ports: tuple[int, int], folder: Path | None, ready: Any, done: Any) -> None:
    """Take frames over the link until told to stop."""

    async def receive(sender: int, frame: bytes) -> None:
        pass

    async def work() -> None:
        link = GrpcLink(1, roster(ports, folder), read(folder, "b"))
        await link.open(receive)
        ready.set()
        while not done.is_set():
            await asyncio.sleep(0.2)
        await link.close()

    asyncio.run(work())


@contextlib.contextmanager
def grpc_sender(
    ports: tuple[int, int], folder: Path | None, chunk: int, runner: asyncio.Runner
) -> Iterator[Send]:
    """Send frames over the link; all links of a process share a loop."""
    link = GrpcLink(0, roster(ports, folder), read(folder, "a"), settings=Settings(chunk=chunk))

    async def ignore(sender: int, frame: bytes) -> None:
        pass

    async def carry(frame: bytes, times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            await link.send(1, frame)
            await link._senders[1].outbox.drain()
        return time.perf_counter() - began

    runner.run(link.open(ignore))
    yield lambda frame, times: runner.run(carry(frame, times))
    runner.run(link.close())


@contextlib.contextmanager
def ways(folder: Path, chunk: int) -> Iterator[dict[str, Send]]:
    """The four ways to send, each with a receiver in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    done = spawn.Event()
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        dial = functools.partial(grpc_sender, chunk=chunk, runner=runner)
        ports = stack.enter_context(reserved_ports(6))
        made: dict[str, Send] = {}
        started = []
        for number, (mark, place) in enumerate((("plain", None), ("TLS", folder))):
            pair = ports[2 + 2 * number], ports[3 + 2 * number]
            for name, target, arguments, sender in (
                (f"raw socket, {mark}", raw_receiver, (ports[number], place), raw_sender),
                (f"gRPC link, {mark}", grpc_receiver, (pair, place), dial),
            ):
                ready = spawn.Event()
                more = (ready,) if target is raw_receiver else (ready, done)
                process = spawn.Process(target=target, args=(*arguments, *more))
                process.start()
                started.append(process)
                assert ready.wait(60)
                made[name] = stack.enter_context(sender(*arguments))
        yield made
        done.set()
    for process in started:
        process.join(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--frames", type=int, default=5, help="frames in one measurement")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each way")
    parser.add_argument("--chunk", type=int, default=Settings().chunk, help="bytes")
    options = parser.parse_args()
    frame = os.urandom(int(options.megabytes * 1e6))
    with tempfile.TemporaryDirectory() as place:
        for name in "ab":
            keys.write(keys.make(name), Path(place), name)
        with ways(Path(place), options.chunk) as senders:
            rates = measure(senders, frame, options.frames, options.repeat)
    show(rates, options)


def measure(
    senders: dict[str, Send], frame: bytes, frames: int, repeat: int
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in senders}
    for send in senders.values():
        send(frame, 1)
    for _ in range(repeat):
        for name, send in senders.items():
            rates[name].append(len(frame) * frames / send(frame, frames) / 1e6)
    return rates


def show(rates: dict[str, list[float]], options: argparse.Namespace) -> None:
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:<20} {middle[name]:8.0f} MB/s  (from {min(values):.0f} to {max(values):.0f})")
    ratios = {
        mark: middle[f"gRPC link, {mark}"] / middle[f"raw socket, {mark}"]
        for mark in ("plain", "TLS")
    }
    for mark, ratio in ratios.items():
        print(f"gRPC / raw socket, {mark}: {ratio:.2f}")
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    said = {"machine": machine, "MB": options.megabytes, "MB/s": middle, "ratio": ratios}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
