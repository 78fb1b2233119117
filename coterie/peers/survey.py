"""Who is where: the standings of many peers, from their metrics or their run folders."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from coterie import config as configuration
from coterie.errors import InputError, at
from coterie.metrics.traffic import format_bytes
from coterie.peers import standing
from coterie.peers.endpoint import split
from coterie.peers.standing import Standing

PATIENCE = 5.0  # seconds to wait for an answer
LARGEST = 1 << 20  # bytes of an answer
MEMBERS = "peers"  # where the folder of a launch keeps its peers' folders
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # straight, never a proxy


def survey(places: Sequence[str]) -> list[Standing]:
    """The standing of every peer at these addresses, in these folders or configurations."""
    if not places:
        raise InputError("name addresses (host:port), a run folder or a configuration of peers")
    found = [part for place in places for part in _at_place(place)]
    return sorted(found, key=lambda one: one.id)


def _at_place(place: str) -> list[Standing]:
    path = Path(place)
    if path.is_dir():
        return in_folder(path)
    if path.suffix == ".toml":
        return _of_file(path)
    with at(f"there is no folder and no configuration {place!r}"):
        return [asked(place)]


def in_folder(folder: Path) -> list[Standing]:
    """The standings in the folder of a peer, or of a launch and all its peers."""
    folders = [folder, *sorted(path for path in (folder / MEMBERS).glob("*") if path.is_dir())]
    found = [one for one in map(standing.read, folders) if one is not None]
    if not found:
        raise InputError(
            f"no {standing.FILE} in {str(folder)!r}; give the folder of coterie peer or launch"
        )
    return found


def _of_file(path: Path) -> list[Standing]:
    """What the peers of a configuration answer, of those whose metrics it names."""
    peers = [peer for peer in configuration.load(path).peers if peer.metrics]
    if not peers:
        raise InputError(
            f"{path} names no metrics in [[peers]]; add metrics = 'host:port' to each, "
            "or give the addresses themselves"
        )
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda peer: asked(peer.metrics, peer.id), peers))


def asked(address: str, peer: int = 0) -> Standing:
    """What the peer at an address says of itself; one that does not answer is unreachable."""
    host, port = split(address)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    try:
        with _OPENER.open(url, timeout=PATIENCE) as answer:
            return standing.from_metrics(answer.read(LARGEST).decode())
    except (OSError, ValueError, TypeError, KeyError) as error:
        return Standing(peer, state="unreachable", name=f"{address}: {_reason(error)}")


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner)


def troubles(found: Sequence[Standing]) -> list[str]:
    """Where those are that did not answer, and why, a line each."""
    return [one.name for one in found if one.state == "unreachable"]


def table(found: Sequence[Standing]) -> Table:
    """The standings for people; lag is counted from the furthest of all."""
    furthest = max((max(one.round, one.furthest) for one in found), default=0)
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(COLUMNS):
        made.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for one in found:
        made.add_row(*_cells(replace(one, furthest=furthest)))
    return made


ENDED = ("done", "stopped", "failed")  # states in which a peer hears nobody any more
COLUMNS = ("peer", "state", "round", "accuracy", "lag", "alive", "sent", "received", "seen")


def _cells(one: Standing) -> list[str]:
    peer = "server" if one.id < 0 else str(one.id)
    if one.state == "unreachable":
        return [peer, one.state, *["–"] * (len(COLUMNS) - 2)]
    return [
        peer,
        one.state,
        f"{one.round}/{one.rounds}",
        "–" if one.accuracy is None else f"{one.accuracy:.1f} %",
        str(one.lag),
        "–" if one.state in ENDED else f"{one.alive}/{one.peers}",
        format_bytes(one.bytes),
        format_bytes(one.received),
        f"{max(time.time() - one.time, 0):.0f} s ago",
    ]
