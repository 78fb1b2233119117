"""The list of peers: who takes part, where each listens, and which certificate proves it."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from coterie.errors import InputError, unknown
from coterie.links import keys
from coterie.links.link import SERVER

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class PeerEntry:
    """One peer of the list; without a fingerprint it can be reached on this machine only."""

    id: int  # -1: the server
    address: str  # host:port, [host]:port for IPv6
    fingerprint: str = ""  # sha256 of the certificate (DER), 64 hex digits
    certificate: bytes = field(default=b"", repr=False)  # PEM

    def __post_init__(self) -> None:
        _check_id(self.id)
        split_address(self.address)
        if self.fingerprint or self.certificate:
            _check_fingerprint(self)


@dataclass(frozen=True)
class Roster:
    """All peers of a run, by id."""

    peers: tuple[PeerEntry, ...]

    def __post_init__(self) -> None:
        _unique("id", (peer.id for peer in self.peers))
        _unique("address", (peer.address for peer in self.peers))
        secured = [peer for peer in self.peers if peer.fingerprint]
        if 0 < len(secured) < len(self.peers):
            bare = [str(peer.id) for peer in self.peers if not peer.fingerprint]
            raise InputError(
                f"peers without a fingerprint in the list: {', '.join(bare)}; give one to every "
                "peer (coterie keys new prints it), or to none, on one machine"
            )
        _unique("fingerprint", (peer.fingerprint for peer in secured))
        _unique("certificate subject", (keys.subject(peer.certificate) for peer in secured))

    @classmethod
    def from_tables(cls, tables: Sequence[Mapping[str, Any]], folder: Path) -> Roster:
        """The list as `[[peers]]` tables say it; certificates are files relative to the folder."""
        return cls(tuple(_entry(table, folder) for table in tables))

    def __getitem__(self, peer: int) -> PeerEntry:
        """The entry of a peer."""
        for entry in self.peers:
            if entry.id == peer:
                return entry
        raise InputError(f"no peer {peer} in the list of peers; known: {_join(self.ids)}")

    @property
    def ids(self) -> list[int]:
        """The ids of all peers, in order."""
        return sorted(peer.id for peer in self.peers)

    @property
    def secured(self) -> bool:
        """Whether the peers are known by certificates."""
        return bool(self.peers) and all(peer.fingerprint for peer in self.peers)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise InputError(f"an address is host:port with a port from 1 to 65535; got {address!r}")
    if not _valid_host(host):
        raise InputError(f"an address starts with a host name or IP address; got {address!r}")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether an address can be reached from this machine only."""
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _valid_host(host: str) -> bool:
    if not host.startswith("["):
        return bool(_HOST.fullmatch(host))
    try:
        return host.endswith("]") and ipaddress.ip_address(host[1:-1]).version == 6
    except ValueError:
        return False


def _check_id(peer: Any) -> None:
    if type(peer) is not int or peer < SERVER:
        raise InputError(f"the id of a peer is a number from 0, or -1 for the server; got {peer!r}")


def _check_fingerprint(entry: PeerEntry) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", entry.fingerprint):
        raise InputError(
            f"the fingerprint of peer {entry.id} is not 64 hex digits: {entry.fingerprint!r:.80} "
            "(coterie keys new prints it)"
        )
    if not entry.certificate:
        raise InputError(f"peer {entry.id} has a fingerprint but no certificate in the list")
    found = keys.fingerprint(entry.certificate)
    if found != entry.fingerprint:
        raise InputError(
            f"the certificate of peer {entry.id} has the fingerprint {found}, but the list says "
            f"{entry.fingerprint}; ask its owner which is right"
        )


def _entry(table: Mapping[str, Any], folder: Path) -> PeerEntry:
    names = [f.name for f in fields(PeerEntry)]
    for name in table:
        if name not in names:
            raise unknown("key of [[peers]]", name, names)
    missing = [name for name in ("id", "address") if name not in table]
    if missing:
        raise InputError(f"an entry of [[peers]] lacks {' and '.join(missing)}: {dict(table)!r}")
    for name in ("address", "fingerprint", "certificate"):
        if not isinstance(table.get(name, ""), str):
            raise InputError(f"{name} of a peer is text in quotes; got {table[name]!r}")
    return PeerEntry(
        table["id"],
        table["address"],
        table.get("fingerprint", "").replace(":", "").lower(),  # as openssl prints it
        keys.read_certificate(folder / table["certificate"]) if table.get("certificate") else b"",
    )


def _unique(what: str, values: Iterable[Any]) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise InputError(f"two peers of the list have the same {what}: {twice[0]}")


def _join(ids: list[int]) -> str:
    return ", ".join(str(peer) for peer in ids) or "none"
