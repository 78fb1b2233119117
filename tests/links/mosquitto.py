"""A real Mosquitto on a loopback port of its own, for the time of a test."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BINARY = shutil.which("mosquitto", path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
PASSWD = shutil.which("mosquitto_passwd")
needs_mosquitto = pytest.mark.skipif(
    BINARY is None, reason="no mosquitto on this machine: apt-get install mosquitto"
)
_PATIENCE = 60.0  # seconds until it must accept or be gone


@dataclass
class Mosquitto:
    """One broker: its port stays the same when it is killed and started again."""

    folder: Path
    lines: list[str] = field(default_factory=list)  # of the configuration, after the listener
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens; a port that is taken meanwhile is tried again later,
        or another one if nobody knows it yet."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            port = self.port or free_port()
            if self._try(port):
                self.port = port
                return
            time.sleep(0.1)
        raise RuntimeError(f"mosquitto did not start: {self.log()}")

    def kill(self) -> None:
        """SIGKILL: no farewell to anybody."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(_PATIENCE)
            self.process = None

    def log(self) -> str:
        """What it wrote."""
        return (self.folder / "mosquitto.log").read_text()

    def _try(self, port: int) -> bool:
        config = self.folder / "mosquitto.conf"
        # it would drop its rights as root, and could not read the files of the test then
        lines = [f"listener {port} 127.0.0.1", "persistence false", "user root"]
        # else it holds back what follows a confirmation for 40 ms
        lines += ["set_tcp_nodelay true", *self.lines]
        config.write_text("\n".join(lines) + "\n")
        with (self.folder / "mosquitto.log").open("wb") as log:
            self.process = subprocess.Popen(
                [str(BINARY), "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self._listens()

    def _listens(self) -> bool:
        assert self.process is not None
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            if re.search("version .* running", self.log()):
                return True
            time.sleep(0.01)
        self.kill()
        return False


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to connections: a broker
    that is killed and started again must find it free."""
    while True:
        port = 12000 + secrets.randbelow(20000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[Mosquitto]:
    """A broker that lets in everybody, unless lines of configuration say otherwise."""
    broker = Mosquitto(folder, list(lines) or ["allow_anonymous true"])
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def password_lines(folder: Path, passwords: Mapping[str, str]) -> list[str]:
    """Configuration that lets in the users of this mapping."""
    if PASSWD is None:
        pytest.skip("no mosquitto_passwd on this machine: apt-get install mosquitto")
    path = folder / "passwords"
    path.touch(mode=0o600)
    for user, password in passwords.items():
        subprocess.run([PASSWD, "-b", str(path), user, password], check=True, timeout=_PATIENCE)
    return ["allow_anonymous false", f"password_file {path}"]


def tls_lines(certificate: Path, key: Path, clients: Path | None = None) -> list[str]:
    """Configuration for TLS, and for client certificates of an authority where one is given."""
    lines = ["allow_anonymous true", f"certfile {certificate}", f"keyfile {key}"]
    if clients is not None:
        lines += [f"cafile {clients}", "require_certificate true"]
    return lines
