"""A real PostgreSQL of its own for the time of a test; it listens at a socket in its own folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_PLACES = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
_PATH = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
INITDB, CONTROL = shutil.which("initdb", path=_PATH), shutil.which("pg_ctl", path=_PATH)
SETPRIV = shutil.which("setpriv")
needs_postgres = pytest.mark.skipif(
    not (INITDB and CONTROL) or (os.geteuid() == 0 and not SETPRIV),
    reason="no PostgreSQL on this machine: apt-get install postgresql",
)
_NOBODY = 65534  # PostgreSQL refuses to run as root
_PATIENCE = 120.0  # seconds


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The URI of a fresh database; no port is taken, so none can be taken by another."""
    folder = Path(tempfile.mkdtemp(prefix="coterie-pg-"))
    data = folder / "data"
    try:
        _own(folder)
        _call(INITDB, "-D", data, "-U", "learner", "-A", "trust", "-N")
        settings = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        start = ("start", "-w", "-t", int(_PATIENCE), "-l", folder / "log", "-o", settings)
        _call(CONTROL, "-D", data, *start)
        try:
            yield f"postgresql+psycopg2://learner@/postgres?host={folder}"
        finally:
            _call(CONTROL, "-D", data, "stop", "-w", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own(folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)


def _call(*words: object) -> None:
    drop = [SETPRIV, "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups"]
    command = [*(drop if os.geteuid() == 0 else []), *words]
    done = subprocess.run(
        [str(word) for word in command],
        cwd="/",
        stdout=subprocess.DEVNULL,  # the server inherits it, so it must not be a pipe
        stderr=subprocess.DEVNULL,
        timeout=_PATIENCE,
    )
    assert done.returncode == 0, f"{words[0]} failed"
