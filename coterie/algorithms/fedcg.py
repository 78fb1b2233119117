"""FedCG (Caldarola et al., CVPR workshops 2021): clusters of samples, joined by a graph.

The network (`coterie/models/fedcg.py`) assigns every sample to a domain; here is what the server
does with the parts of it: average all, let the teacher follow the student, join the domains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from coterie.algorithms.domains import (
    Begin,
    adjacency,
    compared,
    entropy,
    first_adjacency,
    live_share,
    moved_centers,
    nearest,
    places_of,
    warn_of_collapse,
)
from coterie.algorithms.fedavg import by_samples
from coterie.core import (
    Federated,
    Inbox,
    Listen,
    Nodes,
    Nothing,
    Program,
    Send,
    algorithms,
    mean,
)
from coterie.errors import InputError


@dataclass(frozen=True)
class ServerState:
    """The model, how its domains fare and, where K-means tells them, the clients' centers."""

    params: Tensor  # [replicas, P]
    seen: Tensor  # [replicas, D] samples of each domain that were trained on in the last round
    lately: Tensor  # [replicas, D] and since the teacher last followed
    centers: Tensor  # [replicas, D, S] mean change of theta_a by the clients of each domain


@dataclass(frozen=True)
class ClientState:
    """What a client remembers where K-means tells the domains."""

    domain: Tensor  # [m]


@algorithms.register("fedcg")
@dataclass(frozen=True)
class FedCG(Federated):
    """FedCG (Caldarola et al., 2021): FedAvg of a model 'fedcg', whose domains help each other."""

    made_for: ClassVar[str] = "fedcg"
    every: int = 20  # T, rounds after which the teacher becomes the student
    own: float = 0.5  # beta, how much a domain keeps of itself in the graph
    begin: Begin = "eye"  # A until the teacher first follows; rand, uniform, hamming: by attribute
    graph: bool = True  # then A is made of distances, every round; False: it stays as it began

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"every must be at least 1 round, got {self.every}")
        if not 0 <= self.own <= 1:
            raise InputError(f"own must be in 0..1, got {self.own}")

    def start_server(self, server: Nodes) -> ServerState:
        params, places = server.initial_params(), places_of(server.layout)
        count = places.domains
        if places.assigned and self.cohort().size(server.n) < count:
            raise InputError(
                f"K-means needs a client a domain in a round, got {self.cohort().size(server.n)} "
                f"clients and {count} domains; let more take part (clients, fraction)"
            )
        if count:
            words = server.draw("adjacency", 0, count * count)
            first = first_adjacency(self.begin, words, self.own)
            server.layout.unflatten(params)["adjacency"].copy_(first)
        nobody = params.new_zeros(len(params), count)
        centers = params.new_zeros(len(params), count, places.compared)
        return ServerState(params, nobody, nobody, centers)

    def start(self, nodes: Nodes) -> Nothing | ClientState:
        places = places_of(nodes.layout)
        if not places.assigned:
            return Nothing()
        return ClientState(nodes.draw("domain", 0, 1)[:, 0] % places.domains)  # by chance

    def serve(self, t: int, state: ServerState, server: Nodes) -> Program:
        places, params = places_of(server.layout), state.params
        centers = {"centers": state.centers} if places.assigned else {}
        yield Send({"params": params, **centers}, along=self.down(t, server))
        inbox = yield Listen(self.up(t, server), self.awaited(state, server))
        nothing = torch.zeros_like(params)
        params = params + mean(inbox, "update", otherwise=nothing, by="samples")
        if not places.domains:  # a model without domains: FedAvg
            return replace(state, params=params)
        if places.assigned:
            state = replace(state, centers=moved_centers(state.centers, inbox))
        seen = inbox.sum("seen")
        state = replace(state, params=params, seen=seen, lately=state.lately + seen)
        return self.followed(t + 1, state, server)

    def awaited(self, state: ServerState, server: Nodes) -> dict[str, Tensor]:
        """What a client sends: its update, its domains and, for K-means, how it changed theta_a."""
        places, params = places_of(server.layout), state.params
        plain = {"update": params, "samples": params[:, 0]}
        seen = {"seen": state.seen} if places.domains else {}
        own = {"change": state.centers[:, 0], "domain": server.ids} if places.assigned else {}
        return plain | seen | own

    def followed(self, done: int, state: ServerState, server: Nodes) -> ServerState:
        """The state with the teacher and the adjacency of the next round."""
        params = state.params.clone()
        named = server.layout.unflatten(params)
        if self.graph and done >= self.every:
            rows = [named[f"{layer}.domains"] for layer in places_of(server.layout).layers]
            named["adjacency"].copy_(adjacency(torch.cat(rows, dim=-1), self.own))
        if done % self.every:
            return replace(state, params=params)
        warn_of_collapse(state.lately, done, places_of(server.layout).by)
        for name in named:
            if name.startswith("teacher."):
                named[name].copy_(named["student." + name.removeprefix("teacher.")])
        return replace(state, params=params, lately=torch.zeros_like(state.lately))

    def round(self, t: int, state: Nothing | ClientState, nodes: Nodes) -> Program:
        places, like = places_of(nodes.layout), nodes.no_params
        center = like.new_empty(0, places.domains, places.compared)
        expect = {"params": like} | ({"centers": center} if places.assigned else {})
        inbox = yield Listen(self.down(t, nodes), expect)
        clients, start = nodes[inbox.hearers], inbox["params"][inbox.sender]
        if isinstance(state, ClientState):
            start = self.told(start, state.domain[inbox.receiver], nodes)
        after = clients.train(start, t)
        seen = self.counted(after, nodes)
        rows = by_samples(after - start, clients) | seen
        if isinstance(state, ClientState):
            change = compared(after - start, places)
            state = self.regrouped(state, change, inbox)
            rows |= {"change": change, "domain": state.domain[inbox.receiver]}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return state

    def regrouped(self, state: ClientState, change: Tensor, inbox: Inbox) -> ClientState:
        """The clients that heard are in the domain of the nearest center, from now on."""
        before = state.domain[inbox.receiver]
        domain = nearest(change, inbox["centers"][inbox.sender], before)
        return ClientState(state.domain.index_copy(0, inbox.receiver, domain))

    def told(self, start: Tensor, domain: Tensor, nodes: Nodes) -> Tensor:
        """The models [m, P] in which all samples of a client are in its domain [m]."""
        start = start.clone()
        assigned = nodes.layout.unflatten(start)["assigned"]
        assigned.copy_(domain[:, None] == torch.arange(assigned.shape[1], device=domain.device))
        return start

    def counted(self, after: Tensor, nodes: Nodes) -> dict[str, Tensor]:
        """How many samples of each domain clients trained on; taken out of their models."""
        if not places_of(nodes.layout).domains:
            return {}
        seen = nodes.layout.unflatten(after)["seen"]
        counts = seen.clone()
        seen.zero_()
        return {"seen": counts}

    def notes(self, state: ServerState, server: Nodes) -> dict[str, Tensor]:
        places, named = places_of(server.layout), server.layout.unflatten(state.params)
        if not places.domains:
            return {}
        scales = {
            layer.removeprefix("base."): named.get(f"{layer}.scale") for layer in places.layers
        }
        known = {
            f"lambda {layer}": scale.clone() for layer, scale in scales.items() if scale is not None
        }
        live = live_share(named, places.layers)
        return {
            "domains": state.seen,
            "entropy": entropy(state.seen)[:, None],
            "live": live,
            **known,
        }
