"""A graph of your own, in a text file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core.graphs import Edges, GraphSpec, graphs, undirected
from coterie.errors import InputError


@graphs.register("file")
@dataclass(frozen=True)
class EdgeFile(GraphSpec):
    """Undirected edges from a text file: two node ids a line, '#' starts a comment."""

    path: str = ""  # the file

    def check(self, n: int) -> None:
        self.edges(n, 0, 0)

    def edges(self, n: int, seed: int, t: int) -> Edges:
        lines = enumerate(_lines(self.path), 1)
        pairs = [self._pair(number, line, n) for number, line in lines]
        kept = [pair for pair in pairs if pair]
        return undirected(np.array(kept, dtype=np.int64).reshape(-1, 2).T, n)

    def _pair(self, number: int, line: str, n: int) -> tuple[int, int] | None:
        words = line.split("#")[0].split()
        if not words:
            return None
        if len(words) != 2 or not all(w.isdecimal() and int(w) < n for w in words):
            raise InputError(
                f"{self.path}:{number}: expected two node ids below {n}, got {line.strip()!r}"
            )
        return int(words[0]), int(words[1])


def _lines(path: str) -> list[str]:
    if not path:
        raise InputError("graph 'file' needs a path; set graph = { name = 'file', path = '...' }")
    try:
        return Path(path).expanduser().read_text().splitlines()
    except UnicodeDecodeError:
        raise InputError(f"cannot read the edge file {path!r}: it is not text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the edge file {path!r}: {reason}") from None
