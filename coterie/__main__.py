"""The command as a process: `coterie`, and `python -m coterie`."""

from __future__ import annotations

import contextlib
import os
import sys


def main() -> None:
    """Run the command and end with its exit code.

    Where it failed or was stopped, a thread may still train for nobody, and is not waited for.
    """
    try:
        from coterie import cli  # here: a Ctrl-C while all is imported is no defect either

        cli.main()
    except KeyboardInterrupt:
        _end(130)
    except SystemExit as end:
        if isinstance(end.code, int) and end.code:
            _end(end.code)
        raise


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
