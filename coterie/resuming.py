"""Going on with a run from its folder alone."""

from __future__ import annotations

from pathlib import Path

from coterie.errors import InputError


def file_of(file: Path | None, out: Path | None, resume: bool) -> Path | None:
    """The file to load: the one that is named, or that of the run to go on with."""
    if not resume or file is not None or out is None:
        return file
    own = out / "config.toml"
    if not own.is_file():
        raise InputError(f"there is no run to resume in {str(out)!r} (it has no config.toml)")
    return own
