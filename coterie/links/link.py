"""What a link does: it moves frames between peers and says who sent each of them."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

SERVER = -1  # the id of a federated run's server among its peers

Receive = Callable[[int, bytes], Awaitable[None]]  # the peer that sent a frame, and the frame


@dataclass
class Traffic:
    """Bytes that crossed a link, frames alone; a store counts what it uploads and downloads."""

    sent: int = 0
    received: int = 0
    uploaded: int = 0
    downloaded: int = 0


class Link(abc.ABC):
    """The way from one peer to all others.

    Frames of one peer arrive in the order in which they were sent, each at most once; after a
    reconnection some may be missing. A frame is handed to `receive` only with the id of the peer
    that proved to have sent it, and the next frame of that peer waits until `receive` returns.
    """

    traffic: Traffic

    @abc.abstractmethod
    async def open(self, receive: Receive) -> None:
        """Begin to listen; returns once frames can arrive."""

    @abc.abstractmethod
    async def send(self, to: int, frame: bytes) -> None:
        """Queue a frame for a peer, waiting while its queue is full; the oldest of an unreachable
        peer are dropped instead, so that one dead peer holds up nobody."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Send what is queued for reachable peers, within a bound of time, and stop listening."""
