"""FedSGD (McMahan et al., AISTATS 2017): clients send gradients over all their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coterie.algorithms.fedavg import by_samples, mean_update
from coterie.core import Federated, Listen, Nodes, Nothing, Program, Send, State, algorithms


@algorithms.register("fedsgd")
@dataclass(frozen=True)
class FedSGD(Federated):
    """FedSGD (McMahan et al., 2017): one step along the mean gradient over all clients' data."""

    reads_steps: ClassVar[bool] = True

    def start_server(self, server: Nodes) -> State:
        return State(server.initial_params())

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        gradient = yield from mean_update(self, t, state.params, server)
        return State(state.params - rate(server, gradient) * gradient)

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        clients, start = nodes[inbox.hearers], inbox["params"][inbox.sender]
        gradient = (start - clients.full_step(start)) / rate(clients, start)
        rows = by_samples(gradient, clients)
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return state


def rate(nodes: Nodes, like: Tensor) -> Tensor:
    """The learning rate of each row: [m, 1]."""
    return nodes.lr.to(like)[:, None]
