"""From the configuration to the link of one peer: its keys, the list of peers, the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.config import Config
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.links.broker import Broker
    from coterie.links.letters import Identity
    from coterie.links.link import Link
    from coterie.links.wire import Limits

    Make = Callable[[bytes, Limits], Link]  # of a run's name, for frames within limits

KEYS = "keys"  # the folder beside the configuration where keys are looked for


class Connection:
    """What one peer needs to reach the others, read and checked; nothing is opened yet.

    Paths in the configuration are relative to its folder.
    """

    def __init__(self, config: Config, me: int, folder: Path) -> None:
        self.config, self.me, self.folder = config, me, folder
        self.pins = _pins(config)
        self.pair = self._pair() if self.pins[me] else None  # files of the own key, certificate
        self._make = _LINKS[config.runtime.link](self)

    def link(self, run: bytes, limits: Limits) -> Link:
        """The link of the run with this name, for frames within these limits."""
        return self._make(run, limits)

    @property
    def protection(self) -> str:
        """What keeps strangers out, in words."""
        if self.pair is None:
            return "no keys: peers are not authenticated, so only this machine is reached"
        kind = "mutual TLS" if self.config.runtime.link == "grpc" else "signed messages"
        return f"{kind}; this peer's fingerprint is {self.pins[self.me]}"

    def _pair(self) -> tuple[Path, Path]:
        """The key in the folder of keys that belongs to this peer's fingerprint."""
        from coterie.links import keys

        place = self.folder / (self.config.runtime.keys or KEYS)
        found = [(key, key.with_suffix(".crt")) for key in sorted(place.glob("*.key"))]
        for key, certificate in found:
            if keys.read(key, certificate).fingerprint == self.pins[self.me]:
                return key, certificate
        raise InputError(
            f"{'no key' if found else 'there is no key'} in {str(place.resolve())!r}"
            f"{' has' if found else ' with'} the fingerprint that [[peers]] gives for peer "
            f"{self.me} ({self.pins[self.me]:.16}...); make one with: coterie keys new --out "
            f"{place}, or set runtime.keys to the folder that has it"
        )

    def identity(self) -> Identity | None:
        """What this peer signs secure sums with; None where somebody's certificate is missing."""
        peers = self.config.peers
        if self.pair is None or not all(peer.certificate for peer in peers):
            return None
        from coterie.links import keys
        from coterie.links.letters import Identity

        known = {peer.id: keys.read_certificate(self.folder / peer.certificate) for peer in peers}
        for peer, certificate in known.items():
            if keys.fingerprint(certificate) != self.pins[peer]:
                raise InputError(
                    f"the certificate of peer {peer} has another fingerprint than [[peers]] says; "
                    "ask its owner which is right"
                )
        return Identity(self.me, keys.read(*self.pair).key, known)

    def path(self, name: str) -> Path | None:
        """A file that the configuration names; None: it names none."""
        return self.folder / name if name else None


def _pins(config: Config) -> dict[int, str]:
    """The fingerprint of every peer; empty where peers go without."""
    pins = {peer.id: peer.fingerprint.replace(":", "").lower() for peer in config.peers}
    bare = [str(peer) for peer, pin in pins.items() if not pin]
    if 0 < len(bare) < len(pins):
        raise InputError(
            f"peers without a fingerprint in [[peers]]: {', '.join(bare)}; give one to every peer "
            "(coterie keys new prints it), or to none, on one machine"
        )
    return pins


def _grpc(made: Connection) -> Make:
    try:
        from coterie.links.grpc_link import GrpcLink
    except ImportError:
        raise InputError("runtime.link: grpc needs grpcio: pip install 'coterie[peer]'") from None
    from coterie.links import keys
    from coterie.links.roster import Roster

    known = ("id", "address", "certificate", "fingerprint")
    tables = [{key: getattr(peer, key) for key in known} for peer in made.config.peers]
    own = None if made.pair is None else keys.read(*made.pair)
    roster = Roster.from_tables(tables, made.folder)
    link = partial(GrpcLink, made.me, roster, own, made.config.runtime.listen)
    link()  # before samples are read, says what keys and addresses are no good
    return lambda run, limits: link(limits)


def _mqtt(made: Connection) -> Make:
    from coterie.links import keys
    from coterie.links.mqtt_link import MqttLink, Settings
    from coterie.links.notes import Identity
    from coterie.links.store import Store

    runtime = made.config.runtime
    broker = _broker(made)
    own = None if made.pair is None else keys.read(*made.pair)
    identity = None if own is None else Identity.of(own.key, own.certificate)

    def make(run: bytes, limits: Limits) -> Link:
        store = Store(runtime.store, run, made.me) if runtime.store else None
        bounds = Settings(largest=limits.frame)
        return MqttLink(made.me, run, made.pins, broker, identity, store, bounds)

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
