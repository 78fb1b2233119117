"""FedAdagrad, FedAdam, FedYogi (Reddi et al., ICLR 2021): an adaptive optimizer at the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coterie.algorithms.fedavg import by_samples, updates
from coterie.core import Federated, Listen, Nodes, Nothing, Program, Send, algorithms, mean
from coterie.errors import InputError

RULES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {  # (v, square of the update, beta2)
    "adagrad": lambda v, square, beta: v + square,
    "adam": lambda v, square, beta: beta * v + (1 - beta) * square,
    "yogi": lambda v, square, beta: v - (1 - beta) * square * torch.sign(v - square),
}


@dataclass(frozen=True)
class FedOptState:
    """The server's model and what its optimizer remembers."""

    params: Tensor  # [replicas, P]
    momentum: Tensor  # [replicas, P] m, the running mean of updates
    square: Tensor  # [replicas, P] v, the running size of updates


@algorithms.register(
    "fedadagrad",
    doc="FedAdagrad (Reddi et al., 2021): FedAvg's mean update as a gradient for Adagrad",
    rule="adagrad",
    beta1=0.0,
    lr=0.1,
)
@algorithms.register(
    "fedadam",
    doc="FedAdam (Reddi et al., 2021): FedAvg's mean update as a gradient for Adam",
    rule="adam",
)
@algorithms.register(
    "fedyogi",
    doc="FedYogi (Reddi et al., 2021): FedAvg's mean update as a gradient for Yogi",
    rule="yogi",
)
@algorithms.register("fedopt")
@dataclass(frozen=True)
class FedOpt(Federated):
    """Adaptive federated optimization (Reddi et al., 2021), by the rule of your choice."""

    rule: Literal["adagrad", "adam", "yogi"] = "adam"  # how the size of updates is remembered
    lr: float = 0.01  # eta, the server's learning rate
    beta1: float = 0.9  # how long updates are remembered
    beta2: float = 0.99  # how long their sizes are remembered
    tau: float = 1e-3  # the degree of adaptivity: small updates are not scaled beyond 1 / tau
    initial: float = 0.0  # v before the first round

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.tau <= 0 or self.initial < 0:
            raise InputError("lr and tau must be above 0, initial at least 0")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise InputError("beta1 and beta2 must be at least 0 and below 1")

    def start_server(self, server: Nodes) -> FedOptState:
        params = server.initial_params()
        return FedOptState(params, torch.zeros_like(params), torch.full_like(params, self.initial))

    def serve(self, t: int, state: FedOptState, server: Nodes) -> Program:
        inbox = yield from updates(self, t, state.params, server)
        update = mean(inbox, "update", torch.zeros_like(state.params), by="samples")
        momentum = self.beta1 * state.momentum + (1 - self.beta1) * update
        square = RULES[self.rule](state.square, update.square(), self.beta2)
        step = self.lr * momentum / (square.sqrt() + self.tau)
        trained = server.layout.trained().to(update.device)  # buffers are averaged, as in FedAvg
        params = state.params + torch.where(trained, step, update)
        learned = (inbox.sum("samples") > 0)[:, None]  # else the server keeps all it has
        return FedOptState(
            torch.where(learned, params, state.params),
            torch.where(learned, momentum, state.momentum),
            torch.where(learned, square, state.square),
        )

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        clients, start = nodes[inbox.hearers], inbox["params"][inbox.sender]
        rows = by_samples(clients.train(start, t) - start, clients)
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return state
