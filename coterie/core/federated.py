"""Algorithms with a server, which speaks to the clients of a round and hears what they made of it.

The server is a node with id -1, a one-row block without data, one for each replica. `serve` and
`round` are two programs in the same lockstep: where one sends the other listens, so both yield the
same number of times. Who takes part in round t follows from (seed, t), and only those nodes play
`round`. A toy, whole: the clients of a round train the server's model, the server averages.

    @algorithms.register("toy")
    @dataclass(frozen=True)
    class Toy(Federated):
        '''Average what some clients trained.'''

        def start_server(self, server):
            return State(server.initial_params())

        def serve(self, t, state, server):
            yield Send({"params": state.params}, along=self.down(t, server))
            inbox = yield Listen(self.up(t, server), expect={"params": state.params})
            return State(mean(inbox, "params", otherwise=state.params))

        def round(self, t, state, nodes):
            inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
            clients = nodes[inbox.hearers]  # who heard the server
            params = clients.train(inbox["params"][inbox.sender], t)
            yield Send({"params": params}, along=self.up(t, nodes), sender=inbox.hearers)
            return state
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coterie.core.algorithm import Algorithm, Program, State
from coterie.core.draws import draw_on_host
from coterie.core.graphs import SERVER, Edges, Graph, GraphSpec
from coterie.core.nodes import Nodes
from coterie.core.samples import Samples
from coterie.errors import InputError


@dataclass(frozen=True)
class Nothing:
    """The state of clients that keep nothing between rounds."""


@dataclass(frozen=True)
class Cohort:
    """Which clients take part in a round: some of them, drawn anew every round."""

    fraction: float = 1.0  # of the clients; at least one takes part
    clients: int = 0  # how many; 0: the fraction decides

    def size(self, n: int) -> int:
        """How many of n clients take part."""
        return self.clients or max(round(self.fraction * n), 1)

    def ids(self, n: int, seed: int, t: int) -> npt.NDArray[np.int64]:
        """The clients of round t, ascending."""
        return _drawn(n, self.size(n), seed, t)

    def check(self, n: int) -> None:
        """Raise InputError where n clients have no such cohort."""
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction must be above 0 and at most 1, got {self.fraction}")
        if not 0 <= self.clients <= n:
            raise InputError(
                f"{self.clients} of the {n} clients that train cannot take part; use 1 to {n}"
            )

    def changes(self) -> bool:
        """Whether the clients differ from round to round."""
        return self.clients > 0 or self.fraction < 1


@lru_cache(maxsize=64)  # both directions of a round ask
def _drawn(n: int, size: int, seed: int, t: int) -> npt.NDArray[np.int64]:
    if size >= n:
        return np.arange(n, dtype=np.int64)
    order = np.argsort(draw_on_host(seed, "cohort", t, 1, n)[0], kind="stable")
    return np.sort(order[:size])


@dataclass(frozen=True)
class Down(GraphSpec):
    """From the server to the clients of the round."""

    cohort: Cohort

    def edges(self, n: int, seed: int, t: int) -> Edges:
        clients = self.cohort.ids(n, seed, t)
        return np.stack([np.full_like(clients, SERVER), clients])

    def check(self, n: int) -> None:
        self.cohort.check(n)

    def changes(self) -> bool:
        return self.cohort.changes()


@dataclass(frozen=True)
class Up(GraphSpec):
    """From the clients of the round to the server."""

    cohort: Cohort

    def edges(self, n: int, seed: int, t: int) -> Edges:
        return np.ascontiguousarray(Down(self.cohort).edges(n, seed, t)[::-1])

    def check(self, n: int) -> None:
        self.cohort.check(n)

    def changes(self) -> bool:
        return self.cohort.changes()


@dataclass(frozen=True, kw_only=True)
class Federated(Algorithm):
    """An algorithm with a server; `round` is what the clients of a round do.

    The fields of the clients' state have one row a node. A node that has not taken part yet has no
    state: it is made by `start` when it is first needed. Unless an algorithm says otherwise clients
    keep nothing, and deploy the server's `params`.
    """

    fraction: float = 1.0  # the share of the clients that take part in a round
    clients: int = 0  # how many take part, instead of a fraction; 0: the fraction decides
    # False: what clients keep is no part of what they deploy, so `deliver` is given none of it
    deploys_kept: ClassVar[bool] = True

    def cohort(self) -> Cohort:
        """Who takes part in a round."""
        return Cohort(self.fraction, self.clients)

    @abc.abstractmethod
    def start_server(self, server: Nodes) -> Any:
        """The server's state before the first round: one row a replica."""

    @abc.abstractmethod
    def serve(self, t: int, state: Any, server: Nodes) -> Program:
        """The server's side of a round: yields as often as `round`, returns its next state."""

    def start(self, nodes: Nodes) -> Any:
        """The clients' state before their first round."""
        return Nothing()

    def deliver(self, server: Any, state: Any, nodes: Nodes) -> Any:
        """The state with which nodes go to `personal`, now that they hold the server's state."""
        return State(nodes.of_server(server.params))

    def personal(self, state: Any, nodes: Nodes) -> Tensor:
        params: Tensor = state.params
        return params

    def adopt(self, state: Any, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        """What the server's `state` gives to clients that have never taken part."""
        delivered = self.deliver(state, self.start(newcomers), newcomers)
        return self.personal(delivered, newcomers)

    def notes(self, state: Any, server: Nodes) -> dict[str, Tensor]:
        """Numbers of the last round that belong in the records, by name: [replicas, k]."""
        return {}

    def graph_spec(self) -> GraphSpec:
        """The way from the server to the clients of a round."""
        return Down(self.cohort())

    def down(self, t: int, nodes: Nodes) -> Graph:
        """From the server to the clients of round t."""
        return nodes.graph(Down(self.cohort()), t)

    def up(self, t: int, nodes: Nodes) -> Graph:
        """From the clients of round t to the server."""
        return nodes.graph(Up(self.cohort()), t)

    def here(self, t: int, nodes: Nodes) -> Tensor:
        """The rows of a block that take part in round t, on the CPU."""
        return torch.nonzero(torch.isin(nodes.key, self.down(t, nodes).target)).flatten()


def server_of(nodes: Nodes) -> Nodes:
    """The block of the servers: one row a replica, without data, its key below all nodes' keys."""
    replicas = len(nodes.population.seeds)
    lr = nodes.lr.new_full((replicas,), nodes.population.work.lr)
    lr[nodes.replica] = nodes.lr  # replicas may have rates of their own

    def nobody(data: Samples) -> Samples:
        zero = data.start.new_zeros(replicas)
        return replace(data, start=zero, count=zero)

    return replace(
        nodes,
        key=torch.arange(-replicas, 0),
        train_data=nobody(nodes.train_data),
        valid_data=nobody(nodes.valid_data),
        test_data=nobody(nodes.test_data),
        lr=lr,
        clusters=None,
    )
