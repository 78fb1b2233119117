"""Records as lines of JSON, appended while a part runs and cut back to its checkpoint on resume."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ENCODER = json.JSONEncoder(allow_nan=False)  # made once: there may be a record a node


class Journal:
    """The records of one part of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Iterable[dict[str, Any]]) -> None:
        """Add records at the end."""
        lines = "".join(ENCODER.encode(record) + "\n" for record in records)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(lines)

    def size(self) -> int:
        """How many bytes have been written."""
        return self.path.stat().st_size if self.path.exists() else 0

    def sync(self) -> int:
        """Make sure that all is on disk; returns the size."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
        return self.size()

    def cut(self, size: int) -> None:
        """Drop everything after the first `size` bytes."""
        if self.size() > size:
            os.truncate(self.path, size)

    def read(self, kind: str) -> list[dict[str, Any]]:
        """All records of a kind."""
        if not self.path.exists():
            return []
        mark = f'"kind": {ENCODER.encode(kind)}'  # most lines are of other kinds: do not parse them
        lines = (line for line in self.path.read_text().splitlines() if mark in line)
        return [record for record in map(json.loads, lines) if record["kind"] == kind]
