"""FedAvg (McMahan et al., AISTATS 2017): clients train the server's model, the server averages."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.core import (
    Cohort,
    Federated,
    Listen,
    Nodes,
    Nothing,
    Program,
    Send,
    State,
    algorithms,
    mean,
)


@algorithms.register("fedavg")
@dataclass(frozen=True)
class FedAvg(Federated):
    """FedAvg (McMahan et al., 2017): average what some clients made of the server's model."""

    fraction: float = 1.0  # C, the share of the clients that take part in a round
    clients: int = 0  # how many take part, instead of a fraction; 0: the fraction decides

    def cohort(self) -> Cohort:
        return Cohort(self.fraction, self.clients)

    def start_server(self, server: Nodes) -> State:
        return State(server.initial_params())

    def serve(self, t: int, state: State, server: Nodes) -> Program:
        yield Send({"params": state.params}, along=self.down(t, server))
        expect = {"params": state.params, "samples": state.params[:, 0]}
        inbox = yield Listen(self.up(t, server), expect)
        return State(mean(inbox, "params", otherwise=state.params, by="samples"))

    def round(self, t: int, state: Nothing, nodes: Nodes) -> Program:
        inbox = yield Listen(self.down(t, nodes), expect={"params": nodes.no_params})
        clients = nodes[inbox.receiver]  # who heard the server
        params = clients.train(inbox["params"][inbox.sender], t)
        samples = clients.samples.to(params.dtype)
        rows = {"params": params * samples[:, None], "samples": samples}
        yield Send(rows, along=self.up(t, nodes), sender=inbox.receiver)
        return state

    def deliver(self, server: State, state: Nothing, nodes: Nodes) -> State:
        return State(nodes.of_server(server.params))

    def personal(self, state: State, nodes: Nodes) -> Tensor:
        return state.params
