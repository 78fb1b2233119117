"""A run of real peers, tasks of one process over real links, beside the simulation of that run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.testing import assert_close

from coterie.core import Federated
from coterie.core.federated import server_of
from coterie.core.graphs import SERVER
from coterie.links.link import Link
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Outcome, Plan, Watch
from coterie.runtimes.simulate import FederatedSimulation, simulation_of
from tests.algorithms.test_parity import fields, tiny, whole
from tests.algorithms.world import N

ROUNDS = 5
EVERY = 2  # rounds between evaluations
LONG = 240.0  # seconds; no wait of these runs is ever that long unless something is broken
RUN = bytes(range(16))


@dataclass
class Run:
    """What a run left behind, node by node."""

    states: dict[str, Tensor]  # of the nodes, or of the server
    personal: Tensor
    sent: list[int]  # bytes; a server's last
    choices: list[list[int | None]]  # by round
    losses: dict[int, Tensor]  # by round, where there was an evaluation


def peers_of(name: str) -> list[int]:
    """The ids of all peers that an algorithm needs."""
    return [*range(N), *([SERVER] if isinstance(tiny(name), Federated) else [])]


@cache
def simulated(name: str) -> Run:
    """The run as a simulation in one block."""
    nodes, exchange = whole(name), DirectExchange(N)
    simulation = simulation_of(tiny(name), [nodes], exchange)
    simulation.start()
    choices, losses = [], {}
    for t in range(ROUNDS):
        simulation.round(t)
        chosen = simulation.chosen()
        choices.append([None] * N if chosen is None else chosen.tolist())
        if (t + 1) % EVERY == 0 or t + 1 == ROUNDS:
            losses[t + 1] = torch.cat([n.test(models).loss for n, models in simulation.personal()])
    sent = exchange.sent.tolist()
    simulation.finish(ROUNDS)
    federated = isinstance(simulation, FederatedSimulation)
    states = [simulation.state] if federated else simulation.states
    personal = torch.cat([models for _, models in simulation.personal()])
    sent += exchange.server_sent.tolist() if federated else []
    return Run(fields(states), personal, sent, choices, losses)


def played(name: str, link: Callable[[int], Link]) -> Run:
    """The run as peers of one process, each with its own data, engine and link."""
    return asyncio.run(_played(name, link))


async def _played(name: str, link: Callable[[int], Link]) -> Run:
    ids = peers_of(name)
    reports: dict[int, list] = {peer: [] for peer in ids}
    plan = Plan(RUN, tuple(ids), ROUNDS, deadline=LONG, patience=LONG, evaluate_every=EVERY)
    peers = [_peer(name, p, link(p), plan, Watch(round=reports[p].append)) for p in ids]
    async with asyncio.timeout(2 * LONG):
        done = await asyncio.gather(*(peer.run() for peer in peers))
    _nothing_was_lost(peers, done)
    rounds = [[r for r in reports[peer] if r.phase == "round"] for peer in range(N)]
    losses = {
        mine[0].round: torch.cat([report.scores.loss for report in mine])
        for mine in zip(*rounds, strict=True)
        if mine[0].scores is not None
    }
    return Run(
        fields([o.state for o in (done[N:] or done)]),
        torch.cat([outcome.personal for outcome in done[:N]]),
        [outcome.bytes for outcome in done],
        [[report.choice for report in mine] for mine in zip(*rounds, strict=True)],
        losses,
    )


def _peer(name: str, peer: int, link: Link, plan: Plan, watch: Watch) -> Peer:
    nodes = whole(name)  # an engine of its own: engines are not shared between threads
    nodes = server_of(nodes) if peer == SERVER else nodes[torch.tensor([peer])]
    return Peer(tiny(name), nodes, link, plan, watch)


def _nothing_was_lost(peers: list[Peer], done: list[Outcome]) -> None:
    assert all(outcome.finished and outcome.rounds == ROUNDS for outcome in done)
    for peer in peers:
        status = peer.status()
        assert status.rejected == status.late == 0, status


def same(mine: Run, expected: Run) -> None:
    """Equal choices and bytes, and numbers equal to 1e-9."""
    assert mine.choices == expected.choices
    assert mine.sent == expected.sent
    assert mine.states.keys() == expected.states.keys()
    assert mine.losses.keys() == expected.losses.keys()
    for name, rows in mine.states.items():
        assert_close(rows, expected.states[name], rtol=0, atol=1e-9)
    for done, loss in mine.losses.items():
        assert_close(loss, expected.losses[done], rtol=0, atol=1e-9)
    assert_close(mine.personal, expected.personal, rtol=0, atol=1e-9)
