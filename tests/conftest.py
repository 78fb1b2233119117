"""Settings of all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

from coterie.__main__ import SPINS

# The same examples every time, and no stopwatch: a busy machine changes no result.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

# Tests run side by side: threads of torch that wait for each other must not keep a core busy.
os.environ.setdefault("GOMP_SPINCOUNT", SPINS)

# Sockets, brokers and processes of this machine: where it is so busy that a real deadline passes, a
# test may be tried again, and the last line of pytest says how often that was.
REAL = (
    *("test_parity_links", "test_mcfl_network", "test_mqtt", "test_mqtt_faults"),
    *("test_grpc", "test_grpc_hostile", "test_grpc_identity"),
    *("test_peers", "test_faults", "test_network_faults", "test_broker_faults", "test_seals"),
    *("test_peer", "test_peer_federated", "test_peer_hostile", "test_peer_resume"),
    *("test_peer_stop", "test_resume"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run over real sockets or in processes of their own."""
    for item in items:
        if item.path.stem in REAL:
            item.add_marker(pytest.mark.flaky(reruns=2))
