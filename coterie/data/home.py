"""Where data sets lie on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import InputError


def cache() -> Path:
    """The user's cache of data sets."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "coterie" / "data"


def folders() -> list[Path]:
    """The folders searched for data sets, first to last."""
    chosen = os.environ.get("COTERIE_DATA")
    return [Path(chosen).expanduser(), cache()] if chosen else [cache()]


@dataclass(frozen=True)
class Place:
    """Where one data set may lie, and how a user gets it."""

    name: str
    pattern: str  # its folder in a data folder; may hold a `*`
    system: Path | None = None  # a folder where the operating system may have it
    advice: str = ""  # another way to get it
    fetched: bool = True  # whether `coterie data get` has it

    def find(self) -> Path | None:
        """The first folder that holds the data set."""
        found = [path for folder in folders() for path in sorted(folder.glob(self.pattern))]
        found += [self.system] if self.system else []
        return next((path for path in found if path.is_dir()), None)

    def require(self) -> Path:
        """The folder of the data set, which must be there."""
        found = self.find()
        if found is None:
            raise InputError(f"{self._missing()}; to get it: {self.how()}")
        return found

    def how(self) -> str:
        """What a user does to get the data set."""
        if not self.fetched:
            return self.advice
        return f"coterie data get {self.name}" + (f", or {self.advice}" if self.advice else "")

    def _missing(self) -> str:
        looked = [str(folder / self.pattern) for folder in folders()]
        looked += [str(self.system)] if self.system else []
        chosen = os.environ.get("COTERIE_DATA")
        setting = f"COTERIE_DATA is {chosen!r}" if chosen else "COTERIE_DATA is not set"
        return f"data set {self.name!r} not found; looked in {', '.join(looked)} ({setting})"
