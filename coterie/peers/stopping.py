"""Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.

A clean end has a bound: whatever hangs, the system's alarm clock ends the process then.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LONGEST = 50.0  # seconds for a clean end; below what docs/real-peers.md gives systemd
TIMED = hasattr(signal, "setitimer")  # there is none on Windows


class Stop:
    """Whether somebody asked for the end; `wake` is called once when it happens.

    The handler may run at any moment, also in the middle of an import or of printing, so it sets
    a number, writes bytes, and wakes; it imports, prints and raises nothing.
    """

    def __init__(
        self, at_once: Callable[[], None] = lambda: None, seconds: float = LONGEST
    ) -> None:
        self.number = 0  # of the signal; 0: nobody asked
        self.wake: Callable[[], object] = lambda: None
        self.at_once = at_once  # the last thing to do when the end must not wait
        self.seconds = seconds  # for a clean end
        self.alarm: tuple[float, float] | None = None  # that was set before ours; None: ours is not

    def __enter__(self) -> Stop:
        self.before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        if self.alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, *self.alarm)
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @property
    def code(self) -> int:
        """The exit code that tells which signal it was."""
        return 128 + self.number

    def ask(self, number: int = signal.SIGTERM) -> None:
        """Ask for a clean end, as a signal does."""
        if not self.number:
            self.number = number
            if TIMED:
                self.alarm = signal.setitimer(signal.ITIMER_REAL, self.seconds)
            self.wake()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            self.at_once()
            os._exit(128 + number)
        self.ask(number)
        with contextlib.suppress(OSError):
            if select.select([], [2], [], 0)[1]:  # else nobody reads it, and writing would wait
                os.write(2, b"stopping; what was done is kept (again: at once)\n")
