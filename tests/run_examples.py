"""Run every example at a tiny size: `python tests/run_examples.py`, or some: `... 02 05`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(path: Path) -> bool:
    """Whether an example ends well and prints something; what went wrong is shown."""
    python = [sys.executable, "-W", "error"]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [*(["sh"] if path.suffix == ".sh" else python), str(path)],
            cwd=scratch,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "COTERIE_EXAMPLE_ROUNDS": "2",
                "COTERIE": f"{sys.executable} -m coterie",
                "OMP_NUM_THREADS": "1",
                "TMPDIR": scratch,
            },
            capture_output=True,
            text=True,
        )
    good = done.returncode == 0 and bool(done.stdout.strip()) and not done.stderr
    lines = len(path.read_text().splitlines())
    sys.stdout.write(f"{'ok  ' if good else 'FAIL'} {path.name} ({lines} lines)\n")
    if not good:
        sys.stdout.write(done.stdout + done.stderr)
    return good and lines <= 40


def main() -> int:
    """Run them all; the exit code is the number of those that failed."""
    wanted = sys.argv[1:]
    examples = sorted((ROOT / "examples").glob("[0-9]*.*"))
    examples = [path for path in examples if not wanted or path.name[:2] in wanted]
    passed = sum(run(path) for path in examples)
    failed = len(examples) - passed
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return failed if examples else 1


if __name__ == "__main__":
    sys.exit(main())
