"""Every registered algorithm gives the run of the simulation when its nodes are peers on links."""

from __future__ import annotations

import contextlib

from coterie.links.loopback import Hub
from coterie.links.ports import reserved_ports
from coterie.links.roster import Roster
from tests.algorithms.over_links import peers_of, played, same, simulated
from tests.algorithms.test_parity import every_algorithm
from tests.links import grpc_peers


@contextlib.contextmanager
def roster(ids):
    with reserved_ports(len(ids)) as ports:
        entries = [grpc_peers.entry(p, port, True) for p, port in zip(ids, ports, strict=True)]
        yield Roster(tuple(entries))


@every_algorithm
def test_peers_within_a_process_play_what_is_simulated(name):
    same(played(name, Hub().link), simulated(name))


@every_algorithm
def test_peers_over_grpc_play_what_is_simulated(name):
    with roster(peers_of(name)) as known:
        same(played(name, lambda peer: grpc_peers.link(peer, known)), simulated(name))
