"""A network of namespaces on this machine that loses packets and falls apart when told to.

Every peer has a namespace with a tunnel device; a thread of the test carries packets between them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator

import pytest

IP = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SET_INTERFACE = 0x400454CA  # TUNSETIFF
PLAIN_TUNNEL = 0x1001  # IFF_TUN | IFF_NO_PI


class Forbidden(Exception):
    """This process may not make namespaces or tunnels."""


def ip(*words: str) -> None:
    """Call `ip`."""
    if IP is None:
        raise Forbidden("there is no command ip")
    done = subprocess.run([IP, *words], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Forbidden(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Network:
    """Some hosts, and the thread between them."""

    def __init__(self, count: int) -> None:
        self.names = [f"coterie-{os.getpid()}-{number}" for number in range(count)]
        self.loss = 0.0  # share of the packets
        self.group: set[int] = set()  # of hosts that can reach each other, and nobody else them
        self.dice = random.Random(1)
        self.ready, self.over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.tunnels: list[int] = []  # file descriptors, one a host
        self.problem = ""

    def build(self) -> None:
        """Make the hosts, their addresses, and begin to carry packets."""
        for name in self.names:
            ip("netns", "add", name)
        self.thread.start()
        self.ready.wait(60)
        if self.problem or len(self.tunnels) < len(self.names):
            raise Forbidden(self.problem)
        for number, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"{self.host(number)}/24", "dev", "tun0")
            for link in ("lo", "tun0"):
                ip("-n", name, "link", "set", link, "up")

    def host(self, number: int) -> str:
        """The address of a host."""
        return f"10.77.0.{number + 1}"

    def inside(self, number: int) -> list[str]:
        """The words that put a command onto a host."""
        return [str(IP), "netns", "exec", self.names[number]]

    def remove(self) -> None:
        """Leave nothing behind."""
        self.over.set()
        if self.thread.ident is not None:
            self.thread.join(60)
        for name in self.names:
            with contextlib.suppress(Forbidden):
                ip("netns", "del", name)

    def _work(self) -> None:
        """Open the tunnels, then carry; a thread of its own, as it goes into the namespaces."""
        try:
            self.tunnels = [_tunnel(name) for name in self.names]
        except OSError as error:
            self.problem = str(error)
        self.ready.set()
        while not self.over.is_set() and not self.problem:
            waiting, _, _ = select.select(self.tunnels, [], [], 0.2)
            for tunnel in waiting:
                with contextlib.suppress(OSError):  # a device that is down, a queue that is full
                    self._carry(self.tunnels.index(tunnel), os.read(tunnel, 65536))
        for tunnel in self.tunnels:
            os.close(tunnel)

    def _carry(self, source: int, packet: bytes) -> None:
        if packet[0] >> 4 != 4 or packet[16:19] != bytes([10, 77, 0]):
            return
        target = packet[19] - 1
        if not 0 <= target < len(self.tunnels) or len({source, target} & self.group) == 1:
            return
        if self.dice.random() >= self.loss:
            os.write(self.tunnels[target], packet)


def _tunnel(name: str) -> int:
    """A tunnel device in a namespace; the calling thread stays there."""
    space = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(space, NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no way into the namespace")
    finally:
        os.close(space)
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tunnel, SET_INTERFACE, struct.pack("16sH22x", b"tun0", PLAIN_TUNNEL))
    return tunnel


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """A network for the time of a test, which is skipped where there can be none."""
    made = Network(count)
    try:
        made.build()
        yield made
    except Forbidden as error:
        pytest.skip(f"no network namespaces here: {error}")
    finally:
        made.remove()
