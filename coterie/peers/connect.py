"""From the configuration to the link of one peer: its keys, the list of peers, the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.config import Config
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.links.broker import Broker
    from coterie.links.keys import Keys
    from coterie.links.link import Link
    from coterie.links.roster import Roster

KEYS = "keys"  # the folder beside the configuration where keys are looked for


class Connection:
    """What one peer needs to reach the others, read and checked; nothing is opened yet.

    Paths in the configuration are relative to its folder.
    """

    def __init__(self, config: Config, me: int, folder: Path) -> None:
        self.config, self.me, self.folder = config, me, folder
        self.roster = self._roster()
        self.keys = self._keys()
        self._make = _LINKS[config.runtime.link](self)

    def link(self, run: bytes) -> Link:
        """The link of the run with this name."""
        return self._make(run)

    @property
    def protection(self) -> str:
        """What keeps strangers out, in words."""
        if self.keys is None:
            return "no keys: peers are not authenticated, and only this machine is reached"
        kind = "mutual TLS" if self.config.runtime.link == "grpc" else "signed messages"
        return f"{kind}, this peer's fingerprint is {self.keys.fingerprint}"

    def _roster(self) -> Roster:
        from coterie.links.roster import Roster

        known = ("id", "address", "certificate", "fingerprint")
        tables = [{key: getattr(p, key) for key in known} for p in self.config.peers]
        return Roster.from_tables(tables, self.folder)

    def _keys(self) -> Keys | None:
        """The key in the folder that belongs to this peer's fingerprint."""
        if not self.roster.secured:
            return None
        wanted = self.roster[self.me].fingerprint
        place = self.folder / (self.config.runtime.keys or KEYS)
        for key, certificate in _pairs(place):
            from coterie.links import keys

            found = keys.read(key, certificate)
            if found.fingerprint == wanted:
                return found
        raise InputError(
            f"no key in {str(place)!r} has the fingerprint that [[peers]] gives for peer {self.me} "
            f"({wanted:.16}...); make one with: coterie keys new --out {place}, or set runtime.keys"
        )

    def path(self, name: str) -> Path | None:
        """A file that the configuration names; None: it names none."""
        return self.folder / name if name else None


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    """The keys in a folder, with the certificates beside them."""
    found = [(key, key.with_suffix(".crt")) for key in sorted(folder.glob("*.key"))]
    return [pair for pair in found if pair[1].exists()]


def _grpc(made: Connection) -> Callable[[bytes], Link]:
    try:
        from coterie.links.grpc_link import GrpcLink
    except ImportError:
        raise InputError("runtime.link: grpc needs grpcio: pip install 'coterie[peer]'") from None
    link = GrpcLink(made.me, made.roster, made.keys, made.config.runtime.listen)
    return lambda run: link


def _mqtt(made: Connection) -> Callable[[bytes], Link]:
    from coterie.links.mqtt_link import MqttLink
    from coterie.links.notes import Identity
    from coterie.links.store import Store

    runtime = made.config.runtime
    broker = _broker(made)
    peers = {peer.id: peer.fingerprint for peer in made.roster.peers}
    identity = None if made.keys is None else Identity.of(made.keys.key, made.keys.certificate)

    def make(run: bytes) -> Link:
        store = Store(runtime.store, run, made.me) if runtime.store else None
        return MqttLink(made.me, run, peers, broker, identity, store)

    return make


def _broker(made: Connection) -> Broker:
    from coterie.links.broker import Broker

    table = made.config.runtime.broker
    if not table.url:
        raise InputError(
            "runtime.link: mqtt needs a broker; set runtime.broker.url to mqtts://user@host:port"
        )
    files = [made.path(name) for name in (table.ca, table.certificate, table.key)]
    broker = Broker.at(table.url, *files)
    if table.password_file:
        broker = replace(broker, password=_first_line(made.folder / table.password_file))
    return broker if table.version == "5" else replace(broker, version=4)


def _first_line(path: Path) -> str:
    try:
        return path.read_text().splitlines()[0]
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise InputError(
            f"runtime.broker.password_file: cannot read a line of {str(path)!r}: {error}"
        ) from None


_LINKS = {"grpc": _grpc, "mqtt": _mqtt}
