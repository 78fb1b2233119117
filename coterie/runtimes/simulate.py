"""The simulation: all nodes of all replicas in one process, as one block or several."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coterie.core.algorithm import Algorithm
from coterie.core.answers import checked_models, checked_notes
from coterie.core.federated import Federated, server_of
from coterie.core.lineage import Lineage
from coterie.core.nodes import Nodes
from coterie.runtimes import checkpoint
from coterie.runtimes.kept import Kept
from coterie.runtimes.lockstep import Exchange, play

MODELS_AT_ONCE = 1 << 30  # bytes of personal models that are made together


class Simulated(abc.ABC):
    """A population on its way through the rounds of an algorithm."""

    blocks: list[Nodes]
    exchange: Exchange

    @abc.abstractmethod
    def start(self) -> None:
        """Make the state before the first round."""

    @abc.abstractmethod
    def round(self, t: int) -> None:
        """Play round t."""

    @abc.abstractmethod
    def finish(self, t: int) -> bool:
        """Play the algorithm's last program; False where it has none."""

    @abc.abstractmethod
    def personal(self, by_tests: bool = False) -> Iterator[tuple[Nodes, Tensor]]:
        """All nodes, some at a time and in order, and the model each of them would deploy.

        `by_tests`: what it would take if it could pick a head or model by its test samples.
        """

    @abc.abstractmethod
    def adopted(self, nodes: Nodes, newcomers: Nodes) -> Iterator[tuple[Nodes, Tensor | None]]:
        """Newcomers, some at a time, and what they get from `nodes`, which are all there are."""

    @abc.abstractmethod
    def head_losses(self) -> Tensor | None:
        """The train loss of every head of every node, where the algorithm has heads: [n, k]."""

    @abc.abstractmethod
    def chosen(self) -> Tensor | None:
        """What every node chose last, where the algorithm's state has a `choice`."""

    def picked(self) -> tuple[Tensor, Tensor | None] | None:
        """Whom every node picked last, where the state has `picked`, and its `competitive`."""
        return None

    @abc.abstractmethod
    def lineage(self) -> Lineage | None:
        """The models that the last round brought forth, where the algorithm has a family."""

    @abc.abstractmethod
    def notes(self) -> dict[str, Tensor]:
        """Numbers of the last round that a server wants recorded, by name: [replicas, k]."""

    @abc.abstractmethod
    def save(self, path: Path, note: dict[str, Any]) -> None:
        """Write a checkpoint."""

    @abc.abstractmethod
    def load(self, path: Path) -> None:
        """Go on from a checkpoint, once started."""


def simulation_of(algorithm: Algorithm, blocks: list[Nodes], exchange: Exchange) -> Simulated:
    """The simulation that an algorithm needs."""
    if isinstance(algorithm, Federated):
        return FederatedSimulation(algorithm, blocks, exchange)
    return Simulation(algorithm, blocks, exchange)


class Simulation(Simulated):
    """An algorithm on blocks that together hold the whole population."""

    def __init__(self, algorithm: Algorithm, blocks: list[Nodes], exchange: Exchange) -> None:
        self.algorithm = algorithm
        self.blocks = blocks
        self.exchange = exchange
        self.states: list[Any] = []

    def start(self) -> None:
        self.states = [self.algorithm.start(nodes) for nodes in self.blocks]

    def round(self, t: int) -> None:
        programs = [
            self.algorithm.round(t, state, nodes)
            for state, nodes in zip(self.states, self.blocks, strict=True)
        ]
        self.states = play(t, [nodes.key for nodes in self.blocks], programs, self.exchange)

    def finish(self, t: int) -> bool:
        programs = [
            self.algorithm.finish(t, state, nodes)
            for state, nodes in zip(self.states, self.blocks, strict=True)
        ]
        last = [program for program in programs if program is not None]
        if not last:
            return False
        self.states = play(t, [nodes.key for nodes in self.blocks], last, self.exchange)
        return True

    def personal(self, by_tests: bool = False) -> Iterator[tuple[Nodes, Tensor]]:
        for state, nodes in zip(self.states, self.blocks, strict=True):
            found = self.algorithm.personal(state, _sighted(nodes, by_tests))
            yield nodes, checked_models(found, nodes, self.algorithm)

    def adopted(self, nodes: Nodes, newcomers: Nodes) -> Iterator[tuple[Nodes, Tensor | None]]:
        yield newcomers, self.algorithm.adopt(checkpoint.joined(self.states), nodes, newcomers)

    def head_losses(self) -> Tensor | None:
        pairs = zip(self.states, self.blocks, strict=True)
        return _joined([self.algorithm.head_losses(state, nodes) for state, nodes in pairs])

    def chosen(self) -> Tensor | None:
        if not hasattr(self.states[0], "choice"):
            return None
        return torch.cat([state.choice for state in self.states])

    def picked(self) -> tuple[Tensor, Tensor | None] | None:
        if not hasattr(self.states[0], "picked"):
            return None
        whole = torch.cat([state.picked for state in self.states])
        if not hasattr(self.states[0], "competitive"):
            return whole, None
        return whole, torch.cat([state.competitive for state in self.states])

    def lineage(self) -> Lineage | None:
        return self.algorithm.lineage(self.states[0])

    def notes(self) -> dict[str, Tensor]:
        return {}

    def save(self, path: Path, note: dict[str, Any]) -> None:
        checkpoint.save(path, self.states, self.exchange.sent, note)

    def load(self, path: Path) -> None:
        self.states, self.exchange.sent = checkpoint.load(path, self.states)


class FederatedSimulation(Simulated):
    """A server and blocks of clients, of which only those that take part in a round are trained."""

    def __init__(self, algorithm: Federated, blocks: list[Nodes], exchange: Exchange) -> None:
        self.algorithm = algorithm
        self.blocks = blocks
        self.exchange = exchange
        self.server = server_of(blocks[0])
        population = self.server.population
        population.engine.expect(len(self.server) * algorithm.cohort().size(population.n))
        self.state: Any = None  # of the server
        self.kept: list[Kept] = []

    def start(self) -> None:
        self.state = self.algorithm.start_server(self.server)
        self.kept = [Kept(self.algorithm, nodes) for nodes in self.blocks]

    def round(self, t: int) -> None:
        rows = [(kept, self.algorithm.here(t, kept.nodes)) for kept in self.kept]
        taking = [(kept, here, kept.nodes[here]) for kept, here in rows if len(here)]
        programs = [
            self.algorithm.serve(t, self.state, self.server),
            *(self.algorithm.round(t, kept.take(here), nodes) for kept, here, nodes in taking),
        ]
        keys = [self.server.key, *(nodes.key for _, _, nodes in taking)]
        self.state, *states = play(t, keys, programs, self.exchange)
        for (kept, here, _), state in zip(taking, states, strict=True):
            kept.put(here, state)

    def finish(self, t: int) -> bool:
        return False

    def personal(self, by_tests: bool = False) -> Iterator[tuple[Nodes, Tensor]]:
        for state, nodes in self._delivered():
            found = self.algorithm.personal(state, _sighted(nodes, by_tests))
            yield nodes, checked_models(found, nodes, self.algorithm)

    def adopted(self, nodes: Nodes, newcomers: Nodes) -> Iterator[tuple[Nodes, Tensor | None]]:
        for rows in self._pieces(newcomers):
            some = newcomers[rows]
            yield some, self.algorithm.adopt(self.state, self.server, some)

    def head_losses(self) -> Tensor | None:
        found = [self.algorithm.head_losses(state, nodes) for state, nodes in self._delivered()]
        return _joined(found)

    def _delivered(self) -> Iterator[tuple[Any, Nodes]]:
        """Some clients at a time, with their state after the server has told them its own."""
        for kept in self.kept:
            for rows in self._pieces(kept.nodes):
                nodes = kept.nodes[rows]
                mine = kept.take(rows if self.algorithm.deploys_kept else rows[:0])
                yield self.algorithm.deliver(self.state, mine, nodes), nodes

    def _pieces(self, nodes: Nodes) -> Iterator[Tensor]:
        """Rows of a block whose models fit in memory together."""
        size = self.server.layout.size * self.server.no_params.element_size()
        yield from torch.arange(len(nodes)).split(max(MODELS_AT_ONCE // max(size, 1), 1))

    def chosen(self) -> Tensor | None:
        if not any("choice" in kept.slots for kept in self.kept):
            return None
        return torch.cat([kept.whole("choice", otherwise=-1) for kept in self.kept])

    def lineage(self) -> None:
        return None

    def notes(self) -> dict[str, Tensor]:
        found = self.algorithm.notes(self.state, self.server)
        return checked_notes(found, self.server, self.algorithm)

    def tensors(self) -> dict[str, Tensor]:
        """What the clients keep, and the server's traffic."""
        parts = [kept.tensors() for kept in self.kept]
        names = dict.fromkeys(name for part in parts for name in part)
        kept = {n: torch.cat([part[n] for part in parts if n in part]) for n in names}
        own = {f"client.{name}": rows for name, rows in kept.items()}
        return {"sent.server": self.exchange.server_sent, **own}

    def save(self, path: Path, note: dict[str, Any]) -> None:
        checkpoint.save(path, [self.state], self.exchange.sent, note, self.tensors())

    def load(self, path: Path) -> None:
        (self.state,), self.exchange.sent = checkpoint.load(path, [self.state])
        tensors = checkpoint.read(path)
        if not {"sent.server", "client.key"} <= set(tensors):
            raise checkpoint.foreign(path)
        self.exchange.server_sent = tensors["sent.server"]
        prefix = "client."
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        if not all(kept.restore(own) for kept in self.kept):
            raise checkpoint.foreign(path)


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    """The rows of all parts; None where there are none."""
    there = [part for part in parts if part is not None]
    return torch.cat(there) if there else None


def _sighted(nodes: Nodes, by_tests: bool) -> Nodes:
    """The nodes as they are or, for a comparison, with their test samples to judge by."""
    return replace(nodes, train_data=nodes.test_data) if by_tests else nodes
