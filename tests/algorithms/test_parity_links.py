"""Every registered algorithm gives the run of the simulation when its nodes are peers on links."""

from __future__ import annotations

import contextlib
import os

import pytest

from coterie.core import algorithms
from coterie.links.broker import Broker
from coterie.links.loopback import Hub
from coterie.links.mqtt_link import MqttLink
from coterie.links.ports import reserved_ports
from coterie.links.roster import Roster
from coterie.links.store import Store
from tests.algorithms.over_links import peers_of, played, same, simulated
from tests.algorithms.test_parity import every_algorithm
from tests.links import grpc_peers
from tests.links.mosquitto import mosquitto, needs_mosquitto
from tests.links.peers import fingerprint, identity

pytestmark = pytest.mark.filterwarnings("ignore:FedCG. by round")  # domains without samples


def some(*names):
    """These algorithms in every test run, all others where there is time."""
    marked = [
        name if name in names else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(algorithms.entries)
    ]
    return pytest.mark.parametrize("name", marked)


@contextlib.contextmanager
def roster(ids):
    with reserved_ports(len(ids)) as ports:
        entries = [grpc_peers.entry(p, port, True) for p, port in zip(ids, ports, strict=True)]
        yield Roster(tuple(entries))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as running:
        yield Broker("127.0.0.1", running.port)


@some("epidemic", "dac", "fedavg", "mcfl")
def test_peers_within_a_process_play_what_is_simulated(name):
    same(played(name, Hub().link), simulated(name))


@every_algorithm
def test_peers_over_grpc_play_what_is_simulated(name):
    with roster(peers_of(name)) as known:
        same(played(name, lambda peer: grpc_peers.link(peer, known)), simulated(name))


@needs_mosquitto
@some("facade", "epidemic", "dpsgd", "dac", "mcfl")
def test_peers_over_mqtt_play_what_is_simulated(name, broker, tmp_path):
    run, store = os.urandom(16), f"file://{tmp_path}/store"
    pins = {peer: fingerprint(f"peer {peer}") for peer in peers_of(name)}

    def link(peer):
        mine = identity(f"peer {peer}")
        return MqttLink(peer, run, pins, broker, identity=mine, store=Store(store, run, peer))

    same(played(name, link), simulated(name))
