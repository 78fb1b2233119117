"""HypCluster (Mansour et al., 2020): q hypotheses, each trained by the users it fits best."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.clustered import (
    Choice,
    Chosen,
    average_each,
    check_count,
    choose,
    losses,
    take,
)
from coterie.core import Federated, Inbox, Listen, Nodes, Program, Send, algorithms
from coterie.core.draws import WORD
from coterie.errors import InputError


@dataclass(frozen=True)
class Hypotheses:
    """The server's models."""

    models: Tensor  # [replicas, q, P]


@algorithms.register("hypcluster")
@dataclass(frozen=True)
class HypCluster(Federated):
    """HypCluster (Mansour et al., 2020): users choose among q models, weighted by their samples."""

    models: int = 2  # q; best the number of clusters one expects
    pretrain: bool = True  # the models start as those of q clients after their first local work

    def __post_init__(self) -> None:
        if self.models < 1:
            raise InputError(f"models must be at least 1, got {self.models}")

    def start_server(self, server: Nodes) -> Hypotheses:
        check_count("models", self.models, server)
        streams = ["init" if self.pretrain else f"init/{j}" for j in range(self.models)]
        return Hypotheses(torch.stack([server.initial_params(s) for s in streams], dim=1))

    def start(self, nodes: Nodes) -> Choice:
        return Choice(torch.full_like(nodes.ids, -1))

    def serve(self, t: int, state: Hypotheses, server: Nodes) -> Program:
        yield Send({"models": state.models}, along=self.down(t, server))
        update = state.models[:, 0]
        expect = {"update": update, "weight": update[:, 0], "choice": server.ids}
        inbox = yield Listen(self.up(t, server), expect)
        if t == 0 and self.pretrain:
            return Hypotheses(self.of_clients(state.models, inbox, server))
        return Hypotheses(average_each(state.models, inbox))

    def of_clients(self, models: Tensor, inbox: Inbox, server: Nodes) -> Tensor:
        """The models of q random clients among those heard: [replicas, q, P]."""
        words = server.draw("hypotheses", 0, server.n)  # [replicas, n], for every client
        drawn = words[inbox.receiver, inbox.source[inbox.sender]]  # [E]
        picked = []
        for j in range(self.models):
            lowest = torch.full_like(words[:, 0], WORD)
            lowest = lowest.scatter_reduce(0, inbox.receiver, drawn, "amin")
            first = (drawn == lowest[inbox.receiver]) & (drawn < WORD)
            alone = first / inbox["weight"][inbox.sender].clamp(min=1)
            picked.append(models[:, j] + inbox.sum("update", alone))
            drawn = torch.where(first, WORD, drawn)
        return torch.stack(picked, dim=1)

    def round(self, t: int, state: Choice, nodes: Nodes) -> Program:
        nothing = nodes.no_params[:, None].expand(-1, self.models, -1)
        inbox = yield Listen(self.down(t, nodes), expect={"models": nothing})
        who = inbox.receiver
        clients, models = nodes[inbox.hearers], inbox["models"][inbox.sender]
        choice = choose(models, clients, t)
        start = take(models, choice)
        weight = clients.samples.to(start)
        update = (clients.train(start, t) - start) * weight[:, None]
        rows = {"update": update, "weight": weight, "choice": choice}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return Choice(state.choice.index_copy(0, who, choice))

    def deliver(self, server: Hypotheses, state: Choice, nodes: Nodes) -> Chosen:
        return Chosen(nodes.of_server(server.models))

    def personal(self, state: Chosen, nodes: Nodes) -> Tensor:
        return take(state.models, choose(state.models, nodes, 0))

    def head_losses(self, state: Chosen, nodes: Nodes) -> Tensor:
        return losses(state.models, nodes, 0)
