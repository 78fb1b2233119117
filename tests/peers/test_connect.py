"""Links as a configuration asks for them."""

from __future__ import annotations

from pathlib import Path

from coterie import config as configuration
from coterie.links.grpc_link import GrpcLink
from coterie.links.mqtt_link import MqttLink
from coterie.links.wire import Limits
from coterie.peers.connect import Connection
from tests.contract.company import listed, real

RUN = bytes(range(16))
LIMITS = Limits.up_to(5 << 20)


def connection(here: Path, **changes: object) -> Connection:
    table = real(peers=listed([7000, 7001, 7002, 7003]), **changes)
    return Connection(configuration.parse(table), 0, here)


def test_a_link_takes_frames_as_large_as_its_run_may_send_and_no_larger(tmp_path: Path) -> None:
    link = connection(tmp_path, runtime__link="grpc").link(RUN, LIMITS)
    assert isinstance(link, GrpcLink) and link.limits == LIMITS


def test_so_does_a_link_through_a_broker_and_its_store(tmp_path: Path) -> None:
    where = {"link": "mqtt", "broker": {"url": "mqtt://127.0.0.1:1"}, "store": f"file://{tmp_path}"}
    link = connection(tmp_path, runtime=where).link(RUN, LIMITS)
    assert isinstance(link, MqttLink) and link.settings.largest == LIMITS.frame
