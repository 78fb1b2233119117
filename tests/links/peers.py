"""Peers, keys and certificates for the tests of links through a broker."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.links.broker import Broker
from coterie.links.mqtt_link import MqttLink, Settings
from coterie.links.notes import Identity
from coterie.links.store import Store

PATIENCE = 60.0  # seconds that a test waits for what must happen


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine within a bound of time."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await work

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


@cache
def identity(name: str) -> Identity:
    """A key and a certificate of its own; the same for the same name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return Identity(key, made.public_bytes(serialization.Encoding.DER))


def write(name: str, folder: Path) -> tuple[Path, Path]:
    """The certificate and the key of a name as PEM files."""
    known = identity(name)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    loaded = x509.load_der_x509_certificate(known.certificate)
    certificate.write_bytes(loaded.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        known.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, key


def fingerprint(name: str) -> str:
    """By which others know a peer."""
    return identity(name).fingerprint


@dataclass
class Peer:
    """A link and what it received."""

    link: MqttLink
    got: list[tuple[int, bytes]] = field(default_factory=list)

    async def receive(self, sender: int, frame: bytes) -> None:
        self.got.append((sender, frame))

    async def open(self) -> Peer:
        await self.link.open(self.receive)
        return self

    async def has(self, count: int) -> list[bytes]:
        """The frames, once there are this many."""
        await until(lambda: len(self.got) >= count)
        return [frame for _, frame in self.got]

    async def send(self, to: int, *frames: bytes) -> None:
        for frame in frames:
            await self.link.send(to, frame)


@dataclass
class World:
    """One run of a few peers around a broker."""

    broker: Broker
    size: int = 2
    store: str | None = None
    settings: Settings = field(default_factory=Settings)
    run: bytes = field(default_factory=lambda: os.urandom(16))
    opened: list[Peer] = field(default_factory=list)

    def peer(self, me: int, key: str | None = None, **other: Any) -> Peer:
        """A peer, not open yet; `key` names another identity than its own."""
        pins = {number: fingerprint(f"peer {number}") for number in range(self.size)}
        if key is not None:
            del pins[me]
        store = other.pop("store", self.store)
        made = Peer(
            MqttLink(
                me,
                self.run,
                pins,
                self.broker,
                identity=identity(key or f"peer {me}"),
                store=None if store is None else Store(store, self.run, me),
                settings=other.pop("settings", self.settings),
            )
        )
        self.opened.append(made)
        return made

    def topic(self, to: int, sender: int) -> str:
        return f"coterie/{self.run.hex()}/to/{to}/from/{sender}"

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        leaving: list[Awaitable[None]] = [peer.link.close() for peer in self.opened]
        await asyncio.gather(*leaving)
