"""A folder in which one process works at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from coterie.errors import InputError


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder where there is none, and be the only process in it, or raise InputError.

    The system frees it when the process ends, however that comes about. Where it cannot lock
    folders (some network disks, Windows) nothing is locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is at work in {str(folder)!r}; wait until it ends, or stop it"
                ) from None
        yield
    finally:
        os.close(held)
