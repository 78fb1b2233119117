"""Another data set without its tests: options are chosen on it, and its tests stay unseen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coterie.data.keyed import held_out
from coterie.data.source import Dataset, load, sources
from coterie.errors import InputError


@sources.register("held-out")
@dataclass(frozen=True)
class HeldOut:
    """Another data set, tested on some of its train samples: to tune on; its tests are not used."""

    of: str | dict[str, Any] = "digits"  # its name, or a table with options
    share: float = 0.1  # of the train samples, for tests

    def load(self) -> Dataset:
        """The train samples in two parts, the same ones every time."""
        if not 0 < self.share < 1:
            raise InputError(f"data set 'held-out': share must be in 0..1, got {self.share:g}")
        whole = load(self.of)
        train, tests = held_out(len(whole.train), self.share, 0)
        return replace(
            whole,
            name=f"held-out {whole.name}",
            train=whole.train.take(train),
            test=whole.train.take(tests),
        )
