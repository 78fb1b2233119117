"""A link within one process: frames go through mailboxes, encoded and decoded as on a network."""

from __future__ import annotations

from collections import defaultdict


class MemoryLink:
    """Mailboxes by node key."""

    def __init__(self) -> None:
        self.boxes: dict[int, list[bytes]] = defaultdict(list)

    def send(self, to: int, frame: bytes) -> None:
        """Put a frame into a node's mailbox."""
        self.boxes[to].append(frame)

    def receive(self, key: int) -> list[bytes]:
        """Empty a node's mailbox."""
        return self.boxes.pop(key, [])
