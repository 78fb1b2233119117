"""Peers as processes of this machine, for tests: started, waited for, struck, and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coterie.links import keys
from coterie.links.ports import reserved_ports
from coterie.peers.standing import Standing, read
from tests.contract.command import ROOT, write

LONG = 300.0  # seconds that a test waits at most; reached only when something is broken
GOOD = {None, 0, 130, 143, -signal.SIGKILL}  # exit codes of peers as they should be
Inside = Callable[[int], list[str]]  # the words that put a peer's command somewhere
MADE = {"name": "synthetic", "samples": 400, "classes": 3, "features": 5}


def real(**changes: Any) -> dict[str, Any]:
    """The tables of a run of four nodes that takes a moment; `a__b=c` changes `a.b`."""
    table: dict[str, Any] = {
        "experiment": {"name": "real", "seeds": [1], "rounds": 3},
        "data": {
            "source": MADE,
            "clusters": [
                {"name": "plain", "nodes": 3},
                {"name": "swapped", "nodes": 1, "shifts": [{"name": "swap", "pairs": [[0, 1]]}]},
            ],
        },
        "model": {"name": "mlp", "hidden": [4]},
        "train": {"steps": 2, "precision": "float64"},
        "algorithm": [{"name": "facade", "degree": 2, "warmup": 0}],
        "evaluate": {"every": 1},
        "runtime": {"deadline": LONG, "patience": LONG, "path": "loop"},  # starts fastest
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        table[section] = {**table.get(section, {}), name: value} if name else value
    return table


def listed(ports: list[int], folder: Path | None = None, server: bool = False) -> list[Any]:
    """Entries of [[peers]] on these ports; with keys where a folder for them is given."""
    ids = [-1, *range(len(ports) - 1)] if server else list(range(len(ports)))
    return [_entry(peer, port, folder) for peer, port in zip(ids, ports, strict=True)]


def _entry(peer: int, port: int, folder: Path | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": peer, "address": f"127.0.0.1:{port}"}
    if folder is not None:
        made = keys.make(f"peer{peer}")
        _, certificate = keys.write(made, folder, f"peer{peer}")
        entry |= {"certificate": str(certificate), "fingerprint": made.fingerprint}
    return entry


class Company:
    """Some peers of one configuration, each in a folder of its own below `here`."""

    def __init__(self, here: Path, file: Path, inside: Inside = lambda peer: []) -> None:
        self.here, self.file, self.inside = here, file, inside
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *peers: int, changes: tuple[str, ...] = ()) -> None:
        """Start these peers, or start them again."""
        words = [word for change in changes for word in ("--set", change)]
        for peer in peers:
            who = ["--server"] if peer < 0 else ["--id", str(peer)]
            with (self.here / f"{peer}.log").open("ab") as log:
                self.processes[peer] = subprocess.Popen(
                    [
                        *self.inside(peer),
                        *(sys.executable, "-m", "coterie", "peer", str(self.file), *who),
                        *("--out", str(self.folder(peer)), *words),
                    ],
                    cwd=self.here,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def folder(self, peer: int) -> Path:
        """The run folder of a peer."""
        return self.here / str(peer)

    def strike(self, number: int, *peers: int) -> None:
        """Send a signal."""
        for peer in peers:
            self.processes[peer].send_signal(number)
            if number == signal.SIGKILL:
                self.processes[peer].wait(LONG)

    def standing(self, peer: int) -> Standing:
        """How a peer stands, as its folder says."""
        return read(self.folder(peer)) or Standing(peer)

    def round(self, *peers: int) -> int:
        """The round that the slowest of them has done."""
        return min(self.standing(peer).round for peer in peers)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition; says what every peer said where it does not come."""
        end = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < end, f"not in time: {what}\n{self.told()}"
            codes = {process.poll() for process in self.processes.values()}
            assert codes <= GOOD, f"a peer ended with a code of {codes}: {what}\n{self.told()}"
            time.sleep(0.02)

    def ends(self, *peers: int) -> list[int]:
        """The exit codes of these peers, once they have ended."""
        self.until(lambda: all(self.processes[p].poll() is not None for p in peers), "the end")
        return [self.processes[peer].wait(LONG) for peer in peers]

    def told(self) -> str:
        """What all peers printed last."""
        logs = sorted(self.here.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in logs)

    def events(self, peer: int, event: str) -> list[dict[str, Any]]:
        """The lines of a peer's log about an event."""
        path = self.folder(peer) / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [found for found in map(json.loads, lines) if found["event"] == event]

    def checkpoints(self, peer: int) -> list[int]:
        """The rounds at which a peer can go on."""
        files = (self.folder(peer) / "checkpoints").glob("round-*.safetensors")
        return sorted(int(path.stem.removeprefix("round-")) for path in files)

    def summary(self, peer: int) -> dict[str, Any]:
        """The result of a peer."""
        (result,) = json.loads((self.folder(peer) / "summary.json").read_text())["results"]
        found: dict[str, Any] = result
        return found

    def end(self) -> None:
        """End every process that was started here."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()  # also one that was stopped
                process.wait(LONG)


@contextlib.contextmanager
def company(
    here: Path, table: dict[str, Any], count: int, server: bool = False
) -> Iterator[Company]:
    """A file of peers with keys, on ports that stay theirs, and nobody left at the end."""
    with reserved_ports(count + server) as ports:
        table = {**table, "peers": listed(ports, here / "keys", server)}
        made = Company(here, write(here / "peers.toml", table))
        try:
            yield made
        finally:
            made.end()
