"""A peer's metrics over HTTP: one page, on this machine unless told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from coterie.errors import InputError

LONGEST = 8 << 10  # bytes of a request
PATIENCE = 5.0  # seconds in which a request must come
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def split(address: str) -> tuple[str, int]:
    """Host and port; a port alone is on this machine."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"expected host:port, or a port of this machine, got {address!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextlib.asynccontextmanager
async def endpoint(address: str, render: Callable[[], str]) -> AsyncIterator[str]:
    """Serve what `render` gives under /metrics; gives the address, with the port that was free."""
    host, port = split(address)
    try:
        server = await asyncio.start_server(
            lambda reader, writer: _answer(reader, writer, render), host, port, limit=LONGEST
        )
    except OSError as error:
        raise InputError(
            f"cannot listen for metrics on {host}:{port}: {error.strerror or error}; "
            "choose another runtime.metrics"
        ) from None
    async with server:
        bound = server.sockets[0].getsockname()
        yield f"{bound[0]}:{bound[1]}"


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, render: Callable[[], str]
) -> None:
    """One request, one answer; whoever sends nonsense or nothing is cut off."""
    try:
        async with asyncio.timeout(PATIENCE):
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(_page(request, render))
            await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


def _page(request: bytes, render: Callable[[], str]) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", "only GET\n")
    if path != b"/metrics":
        return _response("404 Not Found", "see /metrics\n")
    return _response("200 OK", render(), body=method == b"GET")


def _response(status: str, text: str, body: bool = True) -> bytes:
    data = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (data if body else b"")
