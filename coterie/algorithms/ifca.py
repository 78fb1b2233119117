"""IFCA (Ghosh et al., NeurIPS 2020): k server models, and every client trains the best one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.algorithms.clustered import (
    Choice,
    Chosen,
    average_each,
    check_count,
    choose,
    losses,
    shares,
    take,
)
from coterie.core import Federated, Inbox, Listen, Nodes, Program, Send, algorithms, mean
from coterie.core.draws import below
from coterie.errors import InputError


@dataclass(frozen=True)
class IFCAState:
    """The server's models, how often they were drawn, and whether that is over."""

    models: Tensor  # [replicas, k, P]
    draws: Tensor  # [replicas]
    kept: Tensor  # [replicas] every model has found enough clients, or there were too many draws


@algorithms.register("ifca")
@dataclass(frozen=True)
class IFCA(Federated):
    """IFCA (Ghosh et al., 2020): clients choose among k models by their loss and train that one."""

    models: int = 2  # k; best the number of clusters one expects
    samples: int = 0  # own train samples on which models are compared; 0: all
    weighted: bool = False  # clients count by their samples; False: all the same, as in the paper
    restart: float = 0.0  # draw all models anew while one of them wins less than this share
    tries: int = 20  # rounds that may be spent on such draws
    shared_core: bool = False  # weight sharing: one core, which all train; only heads are chosen
    pretrain: int = 0  # first rounds, as FedAvg: then all models have its core, and fresh heads
    scattered: int = 0  # next rounds, in which each client keeps to a model drawn at random
    lr_decay: float = 1.0  # the learning rate is multiplied by this every round

    def __post_init__(self) -> None:
        least = {"models": 1} | dict.fromkeys(
            ("samples", "tries", "pretrain", "scattered", "lr_decay"), 0
        )
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"{name} must be at least {bound}, got {getattr(self, name)}")
        if not 0 <= self.restart * self.models <= 1:
            raise InputError(
                f"restart asks for a share of {self.restart} for each of {self.models} models; "
                f"use 0 to {1 / self.models:.2g}"
            )
        if self.restart and (self.pretrain or self.scattered):
            raise InputError(
                "restart would forget what pretrain and scattered did; use one of them"
            )

    @property
    def first_choice(self) -> int:
        return self.pretrain + self.scattered if self.models > 1 else 0

    def start_server(self, server: Nodes) -> IFCAState:
        check_count("models", self.models, server)
        kept = torch.full_like(server.ids, self.restart == 0, dtype=torch.bool)
        return IFCAState(self.draw("init", server), torch.ones_like(server.ids), kept)

    def start(self, nodes: Nodes) -> Choice:
        return Choice(torch.full_like(nodes.ids, -1))

    def serve(self, t: int, state: IFCAState, server: Nodes) -> Program:
        offered = state.models[:, :1] if t < self.pretrain else state.models
        yield Send(self.parts(offered, server), along=self.down(t, server))
        update = state.models[:, 0]
        expect = {"update": update, "weight": update[:, 0], "choice": state.draws}
        inbox = yield Listen(self.up(t, server), expect)
        models = self.averaged(offered, inbox, self.shared(server))
        state = replace(state, models=self.after(t, models, server))
        return self.restarted(t, state, inbox, server) if self.restart else state

    def averaged(self, models: Tensor, inbox: Inbox, shared: int) -> Tensor:
        """Each model after the updates of those who chose it; what is shared, of all."""
        moved = average_each(models, inbox)
        if shared:
            nothing = torch.zeros_like(models[:, 0])
            of_all = models[:, 0] + mean(inbox, "update", otherwise=nothing, by="weight")
            moved[..., :shared] = of_all[:, None, :shared]
        return moved

    def after(self, t: int, models: Tensor, server: Nodes) -> Tensor:
        """The models of the next round: [replicas, k, P]."""
        if t + 1 < self.pretrain:
            return models.expand(-1, self.models, -1)
        if t + 1 == self.pretrain:
            core = server.layout.core
            fresh = self.draw("init", server)
            fresh[..., core] = models[..., core]
            return fresh
        return models

    def restarted(self, t: int, state: IFCAState, inbox: Inbox, server: Nodes) -> IFCAState:
        """Draw the models anew where one of them won too few of the clients heard."""
        fair = shares(inbox, self.models).amin(1) >= self.restart
        again = ~fair & ~state.kept & (state.draws <= self.tries)
        fresh = self.draw(f"init {t}", server)
        return IFCAState(
            models=torch.where(again[:, None, None], fresh, state.models),
            draws=state.draws + again,
            kept=~again,
        )

    def draw(self, stream: str, server: Nodes) -> Tensor:
        """Fresh models: [replicas, k, P]."""
        drawn = [server.initial_params(f"{stream}/{j}") for j in range(self.models)]
        models, shared = torch.stack(drawn, dim=1), self.shared(server)
        models[..., :shared] = models[:, :1, :shared]
        return models

    def shared(self, nodes: Nodes) -> int:
        """How many columns, the first ones, all models have in common."""
        return nodes.layout.core.stop if self.shared_core else 0

    def parts(self, models: Tensor, nodes: Nodes) -> dict[str, Tensor]:
        """What the server sends: models [m, k, P], or what they share once and the rest of each."""
        shared = self.shared(nodes)
        core = {"core": models[:, 0, :shared]} if shared else {}
        return {**core, "models": models[..., shared:]}

    def heard(self, inbox: Inbox) -> Tensor:
        """The whole models that each client heard: [m, k, P]."""
        models = inbox["models"][inbox.sender]
        if not self.shared_core:
            return models
        core = inbox["core"][inbox.sender][:, None].expand(-1, models.shape[1], -1)
        return torch.cat([core, models], dim=2)

    def round(self, t: int, state: Choice, nodes: Nodes) -> Program:
        nothing = nodes.no_params[:, None].expand(-1, 1 if t < self.pretrain else self.models, -1)
        inbox = yield Listen(self.down(t, nodes), expect=self.parts(nothing, nodes))
        who = inbox.receiver
        clients, models = nodes[inbox.hearers], self.heard(inbox)
        choice = self.chosen(t, models, clients)
        start = take(models, choice)
        weight = clients.samples if self.weighted else clients.samples > 0
        weight = weight.to(start.dtype)
        slowed = clients.slowed(self.lr_decay**t)
        update = (slowed.train(start, t) - start) * weight[:, None]
        rows = {"update": update, "weight": weight, "choice": choice}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return Choice(state.choice.index_copy(0, who, choice))

    def chosen(self, t: int, models: Tensor, clients: Nodes) -> Tensor:
        """The model that each client trains in round t: [m]."""
        if t < self.pretrain:
            return torch.zeros_like(clients.ids)
        if t < self.pretrain + self.scattered:
            return below(clients.draw("partition", 0, 1)[:, 0], self.models)
        return choose(models, clients, t, self.samples or None, self.shared(clients))

    def deliver(self, server: IFCAState, state: Choice, nodes: Nodes) -> Chosen:
        return Chosen(nodes.of_server(server.models))

    def personal(self, state: Chosen, nodes: Nodes) -> Tensor:
        return take(state.models, choose(state.models, nodes, 0, shared=self.shared(nodes)))

    def head_losses(self, state: Chosen, nodes: Nodes) -> Tensor:
        return losses(state.models, nodes, 0, shared=self.shared(nodes))
