"""SCAFFOLD (Karimireddy et al., ICML 2020): control variates correct the drift of clients.

Names are those of Algorithm 1: x, c at the server, c_i at client i, y_i after its K local steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core import Federated, Listen, Nodes, Program, Send, algorithms, mean
from coterie.errors import InputError


@dataclass(frozen=True)
class ServerState:
    """The model and the mean of all clients' control variates."""

    params: Tensor  # [replicas, P] x
    control: Tensor  # [replicas, P] c


@dataclass(frozen=True)
class ClientState:
    """What a client remembers: the gradient that it expects."""

    control: Tensor  # [m, P] c_i


@algorithms.register("scaffold")
@dataclass(frozen=True)
class Scaffold(Federated):
    """SCAFFOLD (Karimireddy et al., 2020): local steps are corrected by what others would do."""

    server_lr: float = 1.0  # eta_g, how far the server follows the mean update
    controls: bool = True  # False: they stay zero, which leaves FedAvg with equal weights
    deploys_kept: ClassVar[bool] = False  # as large as models, and only rounds need them
    reads_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.server_lr <= 0:
            raise InputError(f"server_lr must be above 0, got {self.server_lr}")

    def start_server(self, server: Nodes) -> ServerState:
        params = server.initial_params()
        return ServerState(params, torch.zeros_like(params))

    def start(self, nodes: Nodes) -> ClientState:
        return ClientState(nodes.no_params.new_zeros(len(nodes), nodes.layout.size))

    def serve(self, t: int, state: ServerState, server: Nodes) -> Program:
        x, c = state.params, state.control
        yield Send({"x": x, "c": c}, along=self.down(t, server))  # line 4
        inbox = yield Listen(self.up(t, server), expect={"dx": x, "dc": c})
        step = mean(inbox, "dx", otherwise=torch.zeros_like(x))  # lines 16-17
        return ServerState(x + self.server_lr * step, c + inbox.sum("dc") / server.n)

    def round(self, t: int, state: ClientState, nodes: Nodes) -> Program:
        like = nodes.no_params
        inbox = yield Listen(self.down(t, nodes), expect={"x": like, "c": like})
        who = inbox.receiver
        clients, x, c = nodes[inbox.hearers], inbox["x"][inbox.sender], inbox["c"][inbox.sender]
        own = state.control[who]
        y = clients.train(x, t, correction=c - own)  # lines 7-11
        new = self.control(own, c, x, y, clients)
        rows = {"dx": y - x, "dc": new - own}  # line 13
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return ClientState(state.control.index_copy(0, who, new))

    def control(self, own: Tensor, c: Tensor, x: Tensor, y: Tensor, clients: Nodes) -> Tensor:
        """Option II of line 12: what the client's gradients were, on average over its steps."""
        if not self.controls:
            return own
        steps = clients.steps()[:, None]  # K; without samples there are none, and nothing to learn
        travelled = (steps.clamp(min=1) * clients.lr[:, None]).to(x)  # K eta_l
        learned = clients.layout.trained() & (steps > 0)  # buffers have no gradient
        return torch.where(learned.to(x.device), own - c + (x - y) / travelled, own)
