"""The command as a process: `coterie`, and `python -m coterie`."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

FORMAT = warnings.formatwarning
SPINS = "10000"  # turns that a torch thread waits awake, of 300,000: beside busy processes, waste


def main() -> None:
    """Run the command and end with its exit code.

    Where it failed or was stopped, a thread may still train for nobody, and is not waited for.
    """
    warnings.formatwarning = _in_a_line
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is imported
    try:
        from coterie import cli  # here: a Ctrl-C while all is imported is no defect either

        cli.main()
    except KeyboardInterrupt:
        _end(130)
    except SystemExit as end:
        if isinstance(end.code, int) and end.code:
            _end(end.code)
        raise


def _in_a_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Our own warnings are for users, and need no place in the code."""
    own = category is UserWarning and Path(filename).is_relative_to(Path(__file__).parent)
    return f"warning: {message}\n" if own else FORMAT(message, category, filename, lineno, line)


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
