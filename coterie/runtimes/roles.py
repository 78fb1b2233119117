"""What a peer is in a run: a node among equals, a client, or the server of clients."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

from torch import Tensor

from coterie.core.algorithm import Algorithm, Program
from coterie.core.answers import checked_models, checked_notes
from coterie.core.federated import Cohort, Down, Federated, server_of
from coterie.core.graphs import SERVER
from coterie.core.lineage import Lineage
from coterie.core.messages import Listen, Send
from coterie.core.nodes import Nodes


class Role(abc.ABC):
    """Which programs a peer drives."""

    leader: int | None  # the peer that all others follow

    @abc.abstractmethod
    def start(self) -> Any:
        """The state before the first round."""

    @abc.abstractmethod
    def round(self, t: int, state: Any) -> Program | None:
        """The program of round t; None where this peer does not take part in it."""

    @abc.abstractmethod
    def share(self, t: int, state: Any) -> Program | None:
        """The program by which a server's state reaches its clients; None where there is none."""

    @abc.abstractmethod
    def finish(self, t: int, state: Any) -> Program | None:
        """The program after the last round; None where there is none."""

    def lineage(self, state: Any) -> Lineage | None:
        """The models that the last round brought forth; None: there is no family."""
        return None

    def notes(self, state: Any) -> dict[str, Tensor]:
        """Numbers of the last round that a server wants recorded."""
        return {}

    def concerns(self, state: Any) -> list[str]:
        """What the last round left out because it did not verify."""
        return []

    @abc.abstractmethod
    def personal(self, state: Any) -> Tensor | None:
        """The model to deploy [1, P]; None where the peer has no data."""


def role_of(algorithm: Algorithm, nodes: Nodes) -> Role:
    """The role of a node, or of a server, in an algorithm."""
    if not isinstance(algorithm, Federated):
        return Equal(algorithm, nodes)
    if int(nodes.key) == SERVER:
        return Server(algorithm, nodes)
    return Client(algorithm, nodes)


class Equal(Role):
    """A node among equals."""

    leader = None

    def __init__(self, algorithm: Algorithm, nodes: Nodes) -> None:
        self.algorithm = algorithm
        self.nodes = nodes

    def start(self) -> Any:
        return self.algorithm.start(self.nodes)

    def round(self, t: int, state: Any) -> Program:
        return self.algorithm.round(t, state, self.nodes)

    def share(self, t: int, state: Any) -> None:
        return None

    def finish(self, t: int, state: Any) -> Program | None:
        return self.algorithm.finish(t, state, self.nodes)

    def lineage(self, state: Any) -> Lineage | None:
        return self.algorithm.lineage(state)

    def concerns(self, state: Any) -> list[str]:
        return self.algorithm.concerns(state)

    def personal(self, state: Any) -> Tensor:
        found = self.algorithm.personal(state, self.nodes)
        return checked_models(found, self.nodes, self.algorithm)


class Client(Role):
    """A node with a server; what it would deploy needs the server's state."""

    leader = SERVER

    def __init__(self, algorithm: Federated, nodes: Nodes) -> None:
        self.algorithm = algorithm
        self.nodes = nodes
        self.server: Any = None  # its state, as last heard

    def start(self) -> Any:
        self.server = self.algorithm.start_server(server_of(self.nodes))
        return self.algorithm.start(self.nodes)

    def round(self, t: int, state: Any) -> Program | None:
        here = len(self.algorithm.here(t, self.nodes)) > 0
        return self.algorithm.round(t, state, self.nodes) if here else None

    def share(self, t: int, state: Any) -> Program:
        inbox = yield Listen(self.nodes.graph(Down(Cohort()), t), expect=_fields(self.server))
        if len(inbox.source):
            heard = {name: inbox[name] for name in _fields(self.server)}
            self.server = dataclasses.replace(self.server, **heard)
        return state

    def finish(self, t: int, state: Any) -> None:
        return None

    def personal(self, state: Any) -> Tensor:
        delivered = self.algorithm.deliver(self.server, state, self.nodes)
        found = self.algorithm.personal(delivered, self.nodes)
        return checked_models(found, self.nodes, self.algorithm)


class Server(Role):
    """The server of all clients; it has no data."""

    leader = None

    def __init__(self, algorithm: Federated, nodes: Nodes) -> None:
        self.algorithm = algorithm
        self.nodes = nodes

    def start(self) -> Any:
        return self.algorithm.start_server(self.nodes)

    def round(self, t: int, state: Any) -> Program:
        return self.algorithm.serve(t, state, self.nodes)

    def share(self, t: int, state: Any) -> Program:
        yield Send(_fields(state), self.nodes.graph(Down(Cohort()), t))
        return state

    def finish(self, t: int, state: Any) -> None:
        return None

    def notes(self, state: Any) -> dict[str, Tensor]:
        return checked_notes(self.algorithm.notes(state, self.nodes), self.nodes, self.algorithm)

    def personal(self, state: Any) -> None:
        return None


def _fields(state: Any) -> dict[str, Tensor]:
    """The fields of a server's state: one row each."""
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
