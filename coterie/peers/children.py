"""Peers as processes of this machine: started, watched, and ended without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # peers share cores
GRACE = 30.0  # seconds in which a peer must end after it was asked to
KILLED = 5.0  # seconds in which it must be gone after it was killed


@dataclass
class Child:
    """One process, in a group of its own."""

    id: int
    process: asyncio.subprocess.Process
    output: Path  # what it prints
    code: int | None = None  # None: it runs

    def signal(self, number: int) -> None:
        """Send a signal to its whole group, where it still runs."""
        if self.code is None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def last_words(self) -> str:
        """The last line that it printed."""
        lines = self.output.read_text(errors="replace").split("\n") if self.output.exists() else []
        words = [line.strip() for line in lines if line.strip()]
        return words[-1] if words else "it said nothing"


@dataclass
class Children:
    """All processes that were started here; nothing else is ever touched."""

    all: list[Child] = field(default_factory=list)
    waits: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, peer: int, words: Sequence[object], output: Path) -> None:
        """Start `coterie` with these words; it ends when this process does."""
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "coterie", *map(str, words)),
                stdin=asyncio.subprocess.PIPE,  # its leash: closed by the system when we die
                stdout=file,
                stderr=file,
                env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
                start_new_session=True,  # Ctrl-C on a terminal is for us alone
            )
        child = Child(peer, process, output)
        self.all.append(child)
        self.waits.add(asyncio.create_task(self._wait(child)))

    async def _wait(self, child: Child) -> None:
        child.code = await child.process.wait()

    @property
    def running(self) -> list[Child]:
        """Those that have not ended."""
        return [child for child in self.all if child.code is None]

    @property
    def died(self) -> list[Child]:
        """Those that ended badly."""
        return [child for child in self.all if child.code]

    def ask(self) -> None:
        """Ask all to end."""
        for child in self.running:
            child.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all at once; also safe inside a signal handler."""
        for child in self.all:
            child.signal(signal.SIGKILL)

    async def end(self) -> None:
        """See all of them end, by force where asking does not help."""
        self.ask()
        if self.waits:
            await asyncio.wait(self.waits, timeout=GRACE)
        self.kill()
        if self.waits:  # whom the system cannot end, because its disk hangs, is left to it
            await asyncio.wait(self.waits, timeout=KILLED)
