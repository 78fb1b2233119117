"""Peers of one process for tests: a clock that stands still, a toy to play, and a hub."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coterie.core import Algorithm, Full, Nodes, Program, Send, State, mix
from coterie.core.federated import Federated, server_of
from coterie.core.graphs import SERVER, GraphSpec
from coterie.links.link import Link
from coterie.links.loopback import Hub
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Outcome, Plan, Watch
from coterie.runtimes.roll import Place

from ..world import World

RUN = bytes(range(16))
DEADLINE, PATIENCE = 60.0, 600.0
TICK = 5.0


@dataclass(frozen=True)
class Averaging(Algorithm):
    """Node i starts at i, adds 1 a round, and averages with its neighbors."""

    spec: GraphSpec = field(default_factory=Full)
    pauses: dict[tuple[int, int], threading.Event] = field(default_factory=dict, hash=False)

    def start(self, nodes: Nodes) -> State:
        return State(nodes.ids.double()[:, None].repeat(1, nodes.layout.size))

    def round(self, t: int, state: State, nodes: Nodes) -> Program:
        pause = self.pauses.get((int(nodes.ids[0]), t))
        assert pause is None or pause.wait(60)
        params = state.params + 1
        inbox = yield Send({"params": params}, along=nodes.graph(self.spec, t))
        return State(mix(params, inbox, "params"))

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        """Sleep until these seconds are over."""
        over = asyncio.get_running_loop().create_future()
        self.sleepers.append((seconds, over))
        await over

    def waiting(self, seconds: float) -> int:
        """How many sleep for this long."""
        return sum(length == seconds and not over.done() for length, over in self.sleepers)

    def strike(self, seconds: float) -> None:
        """All who sleep for this long wake up."""
        for length, over in self.sleepers:
            if length == seconds and not over.done():
                over.set_result(None)
        self.sleepers = [(length, over) for length, over in self.sleepers if not over.done()]


async def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for a condition, and fail where it does not come true."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def within(test: Coroutine[Any, Any, None], seconds: float = 100.0) -> None:
    """Run a test that must not hang."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await test

    asyncio.run(bounded())


@dataclass
class Company:
    """A population of which every node is a peer of its own, at one hub and one clock."""

    algorithm: Algorithm
    n: int
    rounds: int
    window: int = 2
    folder: Path | None = None
    checkpoint_every: int = 1
    hub: Hub = field(default_factory=Hub)
    clock: Clock = field(default_factory=Clock)
    peers: dict[int, Peer] = field(default_factory=dict)
    tasks: dict[int, asyncio.Task[Outcome]] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        """All peers, a server last."""
        server = [SERVER] if isinstance(self.algorithm, Federated) else []
        return [*range(self.n), *server]

    def plan(self, peer: int) -> Plan:
        """The plan of a peer."""
        return Plan(
            RUN,
            tuple(self.ids),
            self.rounds,
            deadline=DEADLINE,
            window=self.window,
            patience=PATIENCE,
            evaluate_every=1000,
            checkpoint_every=self.checkpoint_every,
            folder=None if self.folder is None else self.folder / str(peer),
        )

    def peer(self, peer: int, watch: Watch | None = None, link: Link | None = None) -> Peer:
        """A peer with its own data and engine."""
        nodes = World(n=self.n, counts=(4,) * self.n).nodes()
        nodes = server_of(nodes) if peer == SERVER else nodes[torch.tensor([peer])]
        link = link or self.hub.link(peer)
        return Peer(self.algorithm, nodes, link, self.plan(peer), watch, self.clock.sleep)

    def start(self, peer: int, watch: Watch | None = None) -> Peer:
        """Start a peer."""
        made = self.peers[peer] = self.peer(peer, watch)
        self.tasks[peer] = asyncio.create_task(made.run())
        return made

    def start_all(self) -> list[Peer]:
        """Start all peers."""
        return [self.start(peer) for peer in self.ids]

    async def stuck(
        self, place: Place, missing: set[int], *peers: Peer, at: Place | None = None
    ) -> None:
        """Until these peers, and nobody else, wait in this superstep for just these others.

        Those are `at` a place, the same if it is not given, and everybody has heard so.
        """

        def waits(peer: Peer) -> bool:
            return peer.talk.place == place and peer.talk.missing() == missing

        def stands(peer: int) -> bool:
            return peer not in self.peers or self.peers[peer].talk.place == (at or place)

        await eventually(lambda: all(map(waits, peers)) and all(map(stands, missing)))
        await eventually(lambda: self.clock.waiting(DEADLINE) == len(peers))
        await self.settled()

    async def settled(self) -> None:
        """Until nothing is on its way between those who can reach each other."""
        for _ in range(9):  # what is taken from a queue is heard one step later
            await eventually(self._quiet)
            await asyncio.sleep(0)

    def _quiet(self) -> bool:
        ways = self.hub.ways
        posted = any(any(peer.post.queues.values()) for peer in self.peers.values())
        return not posted and not any(ways[way] for way in ways if self.hub.reaches(*way))

    async def outcomes(self) -> dict[int, Outcome]:
        """Wait for all that were started."""
        return {peer: await task for peer, task in sorted(self.tasks.items())}

    async def kill(self, peer: int) -> None:
        """End a peer without a word to the others."""
        self.hub.part([peer], [other for other in self.ids if other != peer])
        self.tasks[peer].cancel()
        await asyncio.gather(self.tasks.pop(peer), return_exceptions=True)
        self.hub.forget(peer)
        self.hub.heal()


def values(outcomes: dict[int, Outcome]) -> list[float]:
    """The first parameter of each node's model."""
    models = [outcome.personal for outcome in outcomes.values()]
    return [float(model[0, 0]) for model in models if model is not None]
