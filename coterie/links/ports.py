"""Ports of this machine that stay free for whoever is told their numbers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Free loopback ports, kept from everybody else until the end of the block.

    A bound socket that does not listen holds each of them: the system gives the port to nobody,
    yet a server that asks for it by number (with SO_REUSEADDR, as servers do) gets it.
    """
    with contextlib.ExitStack() as held:
        yield [held.enter_context(_bound()).getsockname()[1] for _ in range(count)]


def _bound() -> socket.socket:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder
