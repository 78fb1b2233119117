"""Mistakes in a user's own file, told in one line instead of a traceback through inner files."""

from __future__ import annotations

import os
import sys
import traceback

DEBUG = "COTERIE_DEBUG"  # the environment variable that asks for whole tracebacks


def mistake(error: Exception) -> str:
    """What went wrong in a user's own file, where, and what to do; empty: it was not there."""
    from coterie.core.registry import own_modules

    frames = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") in own_modules
    ]
    if not frames:
        return ""
    code, line = frames[-1]
    said = next(traceback.TracebackException.from_exception(error).format_exception_only())
    where = f"{os.path.relpath(code.co_filename)}, line {line}, in {code.co_name}"
    notes = [f"; {note}" for note in getattr(error, "__notes__", ())]
    return f"{' '.join(said.split())} ({where}){''.join(notes)} (whole traceback: {DEBUG}=1)"


def show_traceback(error: Exception) -> None:
    """Print the whole traceback, where the environment asks for it."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error, file=sys.stderr)
