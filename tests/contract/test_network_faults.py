"""Peers on a network that loses packets and falls apart for a while."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.command import write
from tests.contract.company import LONG, Company, listed, real
from tests.contract.network import Network, network

pytestmark = pytest.mark.slow
ALL = (0, 1, 2, 3)


@contextmanager
def connected(here: Path, rounds: int, deadline: float) -> Iterator[tuple[Company, Network]]:
    """Four peers with keys, each on a host of its own."""
    with network(len(ALL)) as net:
        table = real(experiment__rounds=rounds, runtime__deadline=deadline)
        peers = listed([7443] * len(ALL), here / "keys")
        for peer in peers:
            peer["address"] = f"{net.host(peer['id'])}:7443"
        made = Company(here, write(here / "peers.toml", {**table, "peers": peers}), net.inside)
        try:
            yield made, net
        finally:
            made.end()


def test_a_fifth_of_the_packets_lost_changes_nothing(here):
    with connected(here, rounds=6, deadline=LONG) as (peers, net):
        net.loss = 0.2
        peers.start(*ALL)
        assert peers.ends(*ALL) == [0] * 4, peers.told()
        bytes_sent = [peers.summary(peer)["bytes_per_node"] for peer in ALL]
        assert len(set(bytes_sent)) == 1, "everybody heard and was heard by all neighbors"
        assert all(peers.summary(peer)["rounds"] == 6 for peer in ALL)
        assert not any(peers.events(peer, "deadline passed") for peer in ALL)


def test_two_halves_go_on_apart_and_find_each_other_again(here):
    with connected(here, rounds=100000, deadline=3.0) as (peers, net):
        peers.start(*ALL)
        peers.until(lambda: peers.round(*ALL) >= 3, "rounds together")
        net.group = {2, 3}
        peers.until(lambda: all(peers.standing(p).alive == 2 for p in ALL), "silence")
        apart = max(peers.standing(peer).round for peer in ALL)
        peers.until(lambda: peers.round(*ALL) >= apart + 3, "rounds of both halves")
        net.group = set()
        peers.until(lambda: all(peers.standing(p).alive == 4 for p in ALL), "all of them again")
        again = max(peers.standing(peer).round for peer in ALL)
        peers.until(lambda: peers.round(*ALL) >= again + 3, "rounds together again")
        peers.strike(signal.SIGTERM, *ALL)
        assert peers.ends(*ALL) == [143] * 4
