"""FedAvg (McMahan et al., AISTATS 2017): clients train the server's model, the server averages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core import Federated, Listen, Nodes, Nothing, Program, Send, State, algorithms, mean


@algorithms.register("fedavg")
@dataclass(frozen=True)
class FedAvg(Federated):
    """FedAvg (McMahan et al., 2017): average what some clients made of the server's model."""

    sealed: bool = False  # secure aggregation: the server learns the sum of updates, none of them

    def start_server(self, server: Nodes) -> State:
        return State(server.initial_params())

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        update = yield from mean_update(self, t, state.params, server, self.sealed)
        return State(state.params + update)

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        clients, start = nodes[inbox.hearers], inbox["params"][inbox.sender]
        update = clients.train(start, t) - start
        rows = by_samples(update, clients)
        up = self.up(t, nodes)
        apart = nodes.layout.buffers
        yield Send(rows, along=up, sender=inbox.hearers, sealed=self.sealed, apart=apart)
        return state


def mean_update(
    algorithm: Federated, t: int, params: Tensor, server: Nodes, sealed: bool = False
) -> Program:
    """Send the model down; the sample-weighted mean of what comes up, zero if nothing does."""
    inbox = yield from updates(algorithm, t, params, server, sealed)
    return mean(inbox, "update", otherwise=torch.zeros_like(params), by="samples")


def updates(
    algorithm: Federated, t: int, params: Tensor, server: Nodes, sealed: bool = False
) -> Program:
    """Send the model down; the inbox of what comes up, rows as `by_samples` makes them."""
    yield Send({"params": params}, along=algorithm.down(t, server))
    expect = {"update": params, "samples": params[:, 0]}
    inbox = yield Listen(algorithm.up(t, server), expect, sealed, server.layout.buffers)
    return inbox


def by_samples(update: Tensor, clients: Nodes) -> dict[str, Tensor]:
    """Rows that the server only has to add up: the update times the samples, and the samples."""
    samples = clients.samples.to(update.dtype)
    return {"update": update * samples[:, None], "samples": samples}
