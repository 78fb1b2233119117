"""Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked for the end; `wake` is called once when it happens.

    The handler may run at any moment, also in the middle of an import or of printing, so it sets
    a number, writes bytes, and wakes; it imports, prints and raises nothing.
    """

    def __init__(self, at_once: Callable[[], None] = lambda: None) -> None:
        self.number = 0  # of the signal; 0: nobody asked
        self.wake: Callable[[], object] = lambda: None
        self.at_once = at_once  # the last thing to do when the end must not wait

    def __enter__(self) -> Stop:
        self.before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
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
            self.wake()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            self.at_once()
            os._exit(128 + number)
        os.write(2, b"stopping; what was done is kept (again: at once)\n")
        self.ask(number)
