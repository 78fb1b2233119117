"""Peers whose broker dies, and whose store loses or changes what is in it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.contract.command import write
from tests.contract.company import Company, listed, real
from tests.links.mosquitto import Mosquitto, mosquitto, needs_mosquitto

pytestmark = [pytest.mark.slow, needs_mosquitto]
ALL = (0, 1, 2)
WIDE = {"name": "mlp", "hidden": [3000]}  # a model that does not go through the broker


@contextmanager
def brokered(here: Path) -> Iterator[tuple[Company, Mosquitto]]:
    """Three peers with keys that meet at a broker, and share a folder for their models."""
    with mosquitto(here) as broker:
        table = real(experiment__rounds=100000, runtime__deadline=3.0, model=WIDE)
        table["data"]["clusters"][0]["nodes"] = 2
        table["runtime"] |= {
            "link": "mqtt",
            "broker": {"url": f"mqtt://127.0.0.1:{broker.port}"},
            "store": (here / "store").as_uri(),
        }
        peers = listed([7443] * len(ALL), here / "keys")
        for peer in peers:
            del peer["address"]
        made = Company(here, write(here / "peers.toml", {**table, "peers": peers}))
        try:
            yield made, broker
        finally:
            made.end()


def goes_on(peers: Company) -> None:
    """All peers have some more rounds together, and end when asked to."""
    peers.until(lambda: all(peers.standing(p).alive == 3 for p in ALL), "everybody")
    now = max(peers.standing(peer).round for peer in ALL)
    peers.until(lambda: peers.round(*ALL) >= now + 3, "rounds together")
    peers.strike(signal.SIGTERM, *ALL)
    assert peers.ends(*ALL) == [143] * 3
    assert all(peers.summary(peer)["rounds"] >= now for peer in ALL)


def test_a_broker_that_is_killed_and_comes_back(here):
    with brokered(here) as (peers, broker):
        peers.start(*ALL)
        peers.until(lambda: peers.round(*ALL) >= 3, "rounds")
        broker.kill()
        peers.until(lambda: all(said(peers, p, "no connection") for p in ALL), "its absence")
        broker.start()
        goes_on(peers)


def said(peers: Company, peer: int, words: str) -> bool:
    path = peers.folder(peer) / "log.jsonl"
    return path.exists() and words in path.read_text()


def corrupt(store: Path) -> None:
    for path in store.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\0" * path.stat().st_size)


def empty(store: Path) -> None:
    shutil.rmtree(store, ignore_errors=True)


@pytest.mark.parametrize("harm", [corrupt, empty])
def test_a_store_that_is_harmed_costs_frames_and_no_peer(harm: Callable[[Path], None], here):
    with brokered(here) as (peers, _):
        peers.start(*ALL)
        peers.until(lambda: peers.round(*ALL) >= 3, "rounds")

        def lost() -> bool:
            with suppress(OSError):  # a peer removed the file meanwhile
                harm(here / "store")
            return any(said(peers, peer, "is lost") for peer in ALL)

        peers.until(lost, "a lost frame")
        goes_on(peers)
