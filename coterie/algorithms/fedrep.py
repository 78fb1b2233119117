"""FedRep (Collins et al., ICML 2021): the server averages the core, heads stay with the clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core import Federated, Listen, Nodes, Program, Send, State, algorithms, mean
from coterie.errors import InputError


@dataclass(frozen=True)
class ServerState:
    """The representation that all clients share."""

    core: Tensor  # [replicas, C]


@dataclass(frozen=True)
class ClientState:
    """What never leaves a client."""

    head: Tensor  # [m, H]


@algorithms.register("fedrep")
@dataclass(frozen=True)
class FedRep(Federated):
    """FedRep (Collins et al., 2021): clients share the core of their models and keep the heads."""

    head_epochs: float = 10.0  # passes over the own samples that train the head, the core frozen
    core_epochs: float = 1.0  # passes that train the core, the head frozen
    head_steps: int = 0  # local steps of the head instead of head_epochs, if any
    core_steps: int = 0  # local steps of the core instead of core_epochs, if any

    def __post_init__(self) -> None:
        for name in ("head_epochs", "core_epochs", "head_steps", "core_steps"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}")

    def start_server(self, server: Nodes) -> ServerState:
        return ServerState(server.initial_params()[:, server.layout.core])

    def start(self, nodes: Nodes) -> ClientState:
        return ClientState(nodes.initial_params()[:, nodes.layout.head])

    def serve(self, t: int, state: ServerState, server: Nodes) -> Program:
        yield Send({"core": state.core}, along=self.down(t, server))
        expect = {"update": state.core, "samples": state.core[:, :1].sum(1)}
        inbox = yield Listen(self.up(t, server), expect)
        nothing = torch.zeros_like(state.core)
        return ServerState(state.core + mean(inbox, "update", otherwise=nothing, by="samples"))

    def round(self, t: int, state: ClientState, nodes: Nodes) -> Program:
        core = nodes.layout.core
        inbox = yield Listen(self.down(t, nodes), expect={"core": nodes.no_params[:, core]})
        who = inbox.receiver
        clients, start = nodes[inbox.hearers], inbox["core"][inbox.sender]
        params = self.train_head(torch.cat([start, state.head[who]], dim=1), clients, t)
        steps, epochs = work(self.core_steps, self.core_epochs)
        params = clients.train(params, t, "core", core, steps=steps, epochs=epochs)
        samples = clients.samples.to(params.dtype)
        rows = {"update": (params[:, core] - start) * samples[:, None], "samples": samples}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        head = params[:, nodes.layout.head]
        return ClientState(state.head.index_copy(0, who, head))

    def train_head(self, params: Tensor, clients: Nodes, t: int) -> Tensor:
        """The rows after the local work of their heads: [m, P]."""
        steps, epochs = work(self.head_steps, self.head_epochs)
        return clients.train(params, t, "head", clients.layout.head, steps=steps, epochs=epochs)

    def adopt(self, state: ServerState, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        fresh = self.deliver(state, self.start(newcomers), newcomers).params
        return self.train_head(fresh, newcomers, 0)

    def deliver(self, server: ServerState, state: ClientState, nodes: Nodes) -> State:
        return State(torch.cat([nodes.of_server(server.core), state.head], dim=1))


def work(steps: int, epochs: float) -> tuple[int | None, float | None]:
    """Steps and epochs as `train` takes them: steps where there are some."""
    return (steps, None) if steps else (None, epochs)
