"""IFCA (Ghosh et al., NeurIPS 2020): k server models, and every client trains the best one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.algorithms.clustered import Choice, Chosen, average_each, choose, losses, shares, take
from coterie.core import Federated, Inbox, Listen, Nodes, Program, Send, algorithms
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

    def __post_init__(self) -> None:
        least = {"models": 1, "samples": 0, "tries": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"{name} must be at least {bound}, got {getattr(self, name)}")
        if not 0 <= self.restart * self.models <= 1:
            raise InputError(
                f"restart asks for a share of {self.restart} for each of {self.models} models; "
                f"use 0 to {1 / self.models:.2g}"
            )

    def start_server(self, server: Nodes) -> IFCAState:
        kept = torch.full_like(server.ids, self.restart == 0, dtype=torch.bool)
        return IFCAState(self.draw("init", server), torch.ones_like(server.ids), kept)

    def start(self, nodes: Nodes) -> Choice:
        return Choice(torch.full_like(nodes.ids, -1))

    def serve(self, t: int, state: IFCAState, server: Nodes) -> Program:
        yield Send({"models": state.models}, along=self.down(t, server))
        update = state.models[:, 0]
        expect = {"update": update, "weight": update[:, 0], "choice": state.draws}
        inbox = yield Listen(self.up(t, server), expect)
        models = average_each(state.models, inbox)
        if not self.restart:
            return replace(state, models=models)
        return self.restarted(t, replace(state, models=models), inbox, server)

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
        return torch.stack(drawn, dim=1)

    def round(self, t: int, state: Choice, nodes: Nodes) -> Program:
        nothing = nodes.no_params[:, None].expand(-1, self.models, -1)
        inbox = yield Listen(self.down(t, nodes), expect={"models": nothing})
        who = inbox.receiver
        clients, models = nodes[inbox.hearers], inbox["models"][inbox.sender]
        choice = choose(models, clients, t, self.samples or None)
        start = take(models, choice)
        weight = clients.samples if self.weighted else clients.samples > 0
        weight = weight.to(start.dtype)
        update = (clients.train(start, t) - start) * weight[:, None]
        rows = {"update": update, "weight": weight, "choice": choice}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.hearers)
        return Choice(state.choice.index_copy(0, who, choice))

    def deliver(self, server: IFCAState, state: Choice, nodes: Nodes) -> Chosen:
        return Chosen(nodes.of_server(server.models))

    def personal(self, state: Chosen, nodes: Nodes) -> Tensor:
        return take(state.models, choose(state.models, nodes, 0))

    def head_losses(self, state: Chosen, nodes: Nodes) -> Tensor:
        return losses(state.models, nodes, 0)
