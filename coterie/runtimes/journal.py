"""Records as lines of JSON, appended while a part runs and cut back to its checkpoint on resume."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from coterie.errors import InputError

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
        mark = f'"kind": {ENCODER.encode(kind)}'  # most lines are of other kinds: do not parse them
        return [record for _, record in self.entries(mark) if record["kind"] == kind]

    def entries(self, mark: str = "") -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Every line that holds `mark`, and the record in it; InputError where there is none."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            if mark.encode() in line:
                yield line, self._record(number, line)

    def _record(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or "kind" not in record:
            raise self._damaged(f"line {number} is no record")
        return record

    def _damaged(self, why: str) -> InputError:
        beside = self.path.with_suffix(".safetensors").name
        return InputError(
            f"the records {self.path} are damaged ({why}); delete the file, and {beside} and "
            "others of its name beside it, to compute that part afresh"
        )
