"""Sealed runs of real peers: the protocol runs over the links, and the run is the simulated one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import DPSGD, PPDL, EpidemicLearning, FedAvg
from coterie.config import Config
from coterie.core import Algorithm, Federated, Fetch, Full, Send, State
from coterie.core.federated import server_of
from coterie.core.graphs import SERVER
from coterie.errors import InputError
from coterie.links import wire
from coterie.links.broker import Broker
from coterie.links.letters import Identity, Letter, Session
from coterie.links.link import Link
from coterie.links.loopback import Hub
from coterie.links.mqtt_link import MqttLink, Settings
from coterie.links.ports import reserved_ports
from coterie.links.quorum import quorum
from coterie.links.roster import Roster
from coterie.links.store import Store
from coterie.links.wire import WireError
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Plan
from coterie.runtimes.roll import Roll
from coterie.runtimes.seals import Seals
from coterie.runtimes.simulate import simulation_of
from tests.algorithms.world import N, make_nodes
from tests.links import grpc_peers
from tests.links import peers as mqtt_peers
from tests.links.mosquitto import mosquitto, needs_mosquitto

ROUNDS = 2
LONG = 120.0  # seconds; reached only where something is broken
RUN = bytes(range(16))


def ids_of(algorithm):
    return [*range(N), *([SERVER] if isinstance(algorithm, Federated) else [])]


def identity(me, ids):
    known = {peer: grpc_peers.key_of(f"peer-{peer}").certificate for peer in ids}
    return Identity(me, grpc_peers.key_of(f"peer-{me}").key, known)


def simulated(algorithm, threshold=0.5):
    """The personal models of a simulation, and the bytes that each peer, and a server, sent."""
    exchange = DirectExchange(N, 1, threshold)
    simulation = simulation_of(algorithm, [make_nodes((1,))], exchange)
    simulation.start()
    for t in range(ROUNDS):
        simulation.round(t)
    server = exchange.server_sent.tolist() if isinstance(algorithm, Federated) else []
    sent = [*exchange.sent.tolist(), *server]  # an all-reduce is not training traffic
    simulation.finish(ROUNDS)
    return torch.cat([models for _, models in simulation.personal()]), sent


def same(found, expected):
    """Equal models, and as many bytes."""
    assert_close(found[0], expected[0], rtol=0, atol=1e-9)
    assert found[1] == expected[1]


def peer_of(algorithm, peer, link, plan, ids):
    nodes = make_nodes((1,))
    nodes = server_of(nodes) if peer == SERVER else nodes[torch.tensor([peer])]
    return Peer(algorithm, nodes, link, plan, identity=identity(peer, ids))


async def _played(algorithm, link, **more):
    ids = ids_of(algorithm)
    known = {"deadline": LONG, "patience": LONG, "evaluate_every": ROUNDS, **more}
    plan = Plan(RUN, tuple(ids), ROUNDS, **known)
    peers = [peer_of(algorithm, peer, link(peer), plan, ids) for peer in ids]
    async with asyncio.timeout(2 * LONG):
        done = await asyncio.gather(*(peer.run() for peer in peers))
    assert all(outcome.finished and outcome.rounds == ROUNDS for outcome in done)
    assert not any(peer.status().rejected for peer in peers)
    personal = torch.cat([outcome.personal for outcome in done[:N]])
    return personal, [outcome.bytes for outcome in done]


def played(algorithm, link, **more):
    return asyncio.run(_played(algorithm, link, **more))


SEALED = [
    PPDL(sealed=True),
    EpidemicLearning(3, all_reduce=True, sealed=True),
    DPSGD("ring", sealed=True),
    DPSGD({"name": "erdos-renyi", "probability": 0.6}, sealed=True),
    FedAvg(clients=3, sealed=True),
]


@pytest.mark.parametrize("algorithm", SEALED, ids=str)
def test_sealed_peers_play_what_is_simulated(algorithm):
    same(played(algorithm, Hub().link), simulated(algorithm))


def test_a_run_may_ask_for_all_members_instead_of_a_majority():
    seen, hub, algorithm = [], Hub(), PPDL(sealed=True)
    found = played(algorithm, lambda peer: Tap(hub.link(peer), seen), threshold=1.0)
    same(found, simulated(algorithm, threshold=1.0))
    requests = [x for x in letters_of(seen) if x.kind == "request"]
    assert {Session.unpack(x.body).threshold for x in requests} == {3}


def member_alone(threshold):
    """Peer 0 at the first superstep of a sealed run, and the letters that it writes."""
    nodes, written = make_nodes((1,))[torch.tensor([0])], []
    roll = Roll(list(range(1, N)), patience=5)
    known = identity(0, range(N))
    seals = Seals(nodes, RUN, roll, known, lambda *letter: written.append(letter), threshold)
    nobody = torch.full((1, 1), -1)
    seals.say(Fetch({"x": torch.zeros(1, 4)}, nobody, sealed=True), (0, 0))
    return seals, written


@pytest.mark.parametrize(("threshold", "asked"), [(0.5, 3), (1.0, 2)])
def test_a_requester_that_asks_for_another_threshold_gets_no_answer(threshold, asked):
    seals, written = member_alone(threshold)
    for least in (asked, quorum(3, threshold)):
        session = Session(RUN, 0, 0, 5, (0, 1, 2), least, (4,), bytes([least]) * 16)
        letter = identity(5, range(N)).write("request", session.id, session.pack()).pack()
        if least == asked:
            with pytest.raises(WireError, match=f"a threshold of {asked}, which this run does not"):
                seals.hear(5, (0, 0), letter)
            assert not written
        else:
            seals.hear(5, (0, 0), letter)
            assert len(written) == 1


@pytest.mark.parametrize("threshold", [0.0, 0.49, 1.01, float("nan")])
def test_a_threshold_below_a_majority_is_refused(threshold):
    with pytest.raises(InputError, match="a secure sum needs a majority of its members"):
        Plan(RUN, (0, 1, 2), 1, threshold=threshold)
    with pytest.raises(InputError, match=r"runtime\.threshold: a secure sum needs a majority"):
        Config(runtime={"threshold": threshold})


def test_a_quorum_is_a_majority_and_as_large_a_share_as_asked_for():
    found = {share: [quorum(n, share) for n in range(2, 8)] for share in (0.5, 2 / 3, 0.8, 1.0)}
    assert found == {
        0.5: [2, 2, 3, 3, 4, 4],
        2 / 3: [2, 2, 3, 4, 4, 5],
        0.8: [2, 3, 4, 4, 5, 6],
        1.0: [2, 3, 4, 5, 6, 7],
    }


@dataclass(frozen=True)
class Diverged(Algorithm):
    """Everybody adds up everybody's numbers; those of node 2 are none."""

    sealed: bool = True

    def start(self, nodes):
        rows = nodes.ids[:, None].double().expand(-1, nodes.layout.size)
        return State(torch.where(nodes.ids[:, None] == 2, torch.nan, rows))

    def round(self, t, state, nodes):
        rows = self.start(nodes).params
        inbox = yield Send({"x": rows}, along=nodes.graph(Full(), t), sealed=True)
        return State(torch.cat([inbox.sum("x")[:, :1], inbox.count()[:, None]], 1))

    def personal(self, state, nodes):
        return torch.zeros(1, nodes.layout.size, dtype=torch.float64)


def test_a_diverged_peer_drops_out_of_the_sums_of_all_others():
    algorithm, hub, ids = Diverged(), Hub(), list(range(N))
    plan = Plan(RUN, tuple(ids), 1, deadline=LONG, patience=LONG)

    async def states():
        peers = [peer_of(algorithm, peer, hub.link(peer), plan, ids) for peer in ids]
        async with asyncio.timeout(2 * LONG):
            return [outcome.state for outcome in await asyncio.gather(*(p.run() for p in peers))]

    for me, state in enumerate(asyncio.run(states())):
        others = [peer for peer in ids if peer not in (2, me)]
        assert state.params.tolist() == [[sum(others), len(others)]]


@contextlib.contextmanager
def roster(ids):
    with reserved_ports(len(ids)) as ports:
        entries = [grpc_peers.entry(p, port, True) for p, port in zip(ids, ports, strict=True)]
        yield Roster(tuple(entries))


@pytest.mark.parametrize("algorithm", [PPDL(sealed=True), FedAvg(sealed=True)], ids=str)
def test_sealed_peers_over_grpc_play_what_is_simulated(algorithm):
    with roster(ids_of(algorithm)) as known:
        found = played(algorithm, lambda peer: grpc_peers.link(peer, known))
    same(found, simulated(algorithm))


@needs_mosquitto
@pytest.mark.parametrize(
    ("algorithm", "inline"),  # short letters as messages, longer ones through the store
    [(PPDL(sealed=True), 64 << 10), (FedAvg(sealed=True), 1000)],
    ids=str,
)
def test_sealed_peers_over_mqtt_play_what_is_simulated(algorithm, inline, tmp_path):
    run, store = os.urandom(16), f"file://{tmp_path}/store"
    pins = {peer: mqtt_peers.fingerprint(f"peer {peer}") for peer in ids_of(algorithm)}
    settings = Settings(inline=inline, patience=LONG, start=LONG, fetch=LONG)
    with mosquitto(tmp_path) as running:
        broker = Broker("127.0.0.1", running.port)

        def link(peer):
            mine = mqtt_peers.identity(f"peer {peer}")
            return MqttLink(peer, run, pins, broker, mine, Store(store, run, peer), settings)

        found = played(algorithm, link)
    same(found, simulated(algorithm))


class Tap(Link):
    """A link that notes what goes through it."""

    def __init__(self, link, seen):
        self.link, self.seen, self.traffic = link, seen, link.traffic

    async def open(self, receive):
        await self.link.open(receive)

    async def send(self, to, frame):
        self.seen.append(frame)
        await self.link.send(to, frame)

    async def close(self):
        await self.link.close()


def letters_of(seen):
    frames = [wire.decode(f) for f in seen if wire.peek(f).kind == "seal"]
    return [Letter.unpack(f.rows["letter"].numpy().tobytes()) for f in frames]


def test_no_frame_of_a_sealed_run_holds_a_model():
    seen, hub = [], Hub()
    played(PPDL(sealed=True), lambda peer: Tap(hub.link(peer), seen))
    kinds = {wire.peek(frame).kind for frame in seen}
    assert "seal" in kinds and not kinds & {"send", "offer"}
    letters = letters_of(seen)
    assert {letter.kind for letter in letters} >= {"request", "masked", "open"}
    size = make_nodes((1,)).layout.size
    assert all(len(x.body) == 4 * (size + 1) for x in letters if x.kind == "masked")
