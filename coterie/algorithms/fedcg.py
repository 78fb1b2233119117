"""FedCG (Caldarola et al., CVPR workshops 2021): clusters of samples, joined by a graph.

The network (`coterie/models/fedcg.py`) assigns every sample to a domain; here is what the server
does with the parts of it: average all, let the teacher follow the student, join the domains.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.fedavg import by_samples, mean_update
from coterie.core import (
    Cohort,
    Federated,
    Layout,
    Listen,
    Nodes,
    Nothing,
    Program,
    Send,
    State,
    algorithms,
)
from coterie.errors import InputError

TINY = 1e-12  # added to distances: equal domains have none


@algorithms.register("fedcg")
@dataclass(frozen=True)
class FedCG(Federated):
    """FedCG (Caldarola et al., 2021): FedAvg of a model 'fedcg', whose domains help each other."""

    fraction: float = 1.0  # the share of the clients that take part in a round
    clients: int = 0  # how many take part, instead of a fraction; 0: the fraction decides
    every: int = 20  # T, rounds after which the teacher becomes the student
    own: float = 0.5  # beta, how much a domain keeps of itself in the graph
    graph: bool = True  # False: the adjacency stays the identity

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"every must be at least 1 round, got {self.every}")
        if not 0 <= self.own <= 1:
            raise InputError(f"own must be in 0..1, got {self.own}")

    def cohort(self) -> Cohort:
        return Cohort(self.fraction, self.clients)

    def start_server(self, server: Nodes) -> State:
        return State(server.initial_params())

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        update = yield from mean_update(self, t, state.params, server)
        return State(self.followed(t + 1, state.params + update, server.layout))

    def followed(self, done: int, params: Tensor, layout: Layout) -> Tensor:
        """The model with the teacher and the adjacency of the next round."""
        params = params.clone()
        named = layout.unflatten(params)
        if "adjacency" not in named:  # a model without domains: FedAvg
            return params
        if done % self.every == 0:
            for name in named:
                if name.startswith("teacher."):
                    named[name].copy_(named["student." + name.removeprefix("teacher.")])
        if self.graph and done >= self.every:
            rows = [value for name, value in named.items() if name.endswith(".domains")]
            named["adjacency"].copy_(adjacency(torch.cat(rows, dim=-1), self.own))
        return params

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        clients, start = nodes[inbox.hearers], inbox["params"][inbox.sender]
        rows = by_samples(clients.train(start, t) - start, clients)
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return state

    def deliver(self, server: State, state: Nothing, nodes: Nodes) -> State:
        return State(nodes.of_server(server.params))

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params


def adjacency(domains: Tensor, own: float) -> Tensor:
    """A_ii = beta, A_ij in proportion to 1 / |V_i - V_j|: [..., D, q] -> [..., D, D]."""
    count = domains.shape[-2]
    apart = (domains[..., :, None, :] - domains[..., None, :, :]).norm(dim=-1)
    eye = torch.eye(count, dtype=domains.dtype, device=domains.device)
    if count == 1:
        return eye.expand_as(apart)
    near = (1 - eye) / (apart + TINY)
    joined: Tensor = own * eye + (1 - own) * near / near.sum(-1, keepdim=True)
    return joined
