"""The command as a process: `coterie`, and `python -m coterie`."""

from __future__ import annotations

import contextlib
import os
import sys

from coterie import cli


def main() -> None:
    """Run the command and end with its exit code.

    Where it failed or was stopped, a thread may still train for nobody, and is not waited for.
    """
    try:
        cli.main()
    except SystemExit as end:
        if not isinstance(end.code, int) or not end.code:
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(end.code)


if __name__ == "__main__":
    main()
