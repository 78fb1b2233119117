"""FedProx (Li et al., MLSys 2020): FedAvg with a pull to the server's model, and partial work."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.fedavg import by_samples, mean_update
from coterie.core import (
    Federated,
    Listen,
    Nodes,
    Nothing,
    Program,
    Send,
    State,
    algorithms,
    uniform,
)
from coterie.core.draws import below
from coterie.errors import InputError


@algorithms.register("fedprox")
@dataclass(frozen=True)
class FedProx(Federated):
    """FedProx (Li et al., 2020): FedAvg whose clients are pulled towards the server's model."""

    mu: float = 0.01  # strength of the pull towards the server's model
    stragglers: float = 0.0  # probability that a client only does a part of its local work
    drop: bool = False  # leave stragglers out, as FedAvg would, instead of using what they did

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise InputError(f"mu must be at least 0, got {self.mu}")
        if not 0 <= self.stragglers <= 1:
            raise InputError(f"stragglers must be within 0 and 1, got {self.stragglers}")

    def start_server(self, server: Nodes) -> State:
        return State(server.initial_params())

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        update = yield from mean_update(self, t, state.params, server)
        return State(state.params + update)

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        who, start = inbox.hearers, inbox["params"][inbox.sender]
        steps, late = self.work(t, nodes[who])
        if self.drop:
            who, start, steps = who[~late], start[~late.to(start.device)], steps[~late]
        clients = nodes[who]
        update = clients.train(start, t, steps=steps, proximal=self.mu) - start
        yield Send(by_samples(update, clients), along=self.up(t, nodes), sender=who)
        return state

    def work(self, t: int, clients: Nodes) -> tuple[Tensor, Tensor]:
        """Local steps of each client, on the CPU, and which clients are stragglers.

        A straggler does 1 to E - 1 of its E epochs, or steps where [train] counts steps.
        """
        words = torch.zeros(len(clients), 2, dtype=torch.int64)
        if self.stragglers:  # who has none need not wait for a GPU that draws them
            words = clients.draw("stragglers", t, 2).cpu()
        whole = clients.population.work.epochs or clients.population.work.steps or 0
        part = 1 + below(words[:, 1], max(int(whole) - 1, 1))
        late = (uniform(words[:, 0]) < self.stragglers) & (part < whole)
        done = torch.where(late, part, whole)
        counted = "steps" if clients.population.work.epochs is None else "epochs"
        return clients.steps(**{counted: done}), late
