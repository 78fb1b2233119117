"""What an algorithm is: state in, state out; a round is a generator that yields what it sends.

A toy, whole: every node adds up what its neighbors said.

    @algorithms.register("toy")
    @dataclass(frozen=True)
    class Toy(Algorithm):
        '''Sum what the neighbors said.'''

        def start(self, nodes):
            return State(nodes.initial_params())

        def round(self, t, state, nodes):
            inbox = yield Send({"params": state.params}, along=nodes.graph(Ring(), t))
            return State(state.params + inbox.sum("params"))

        def personal(self, state, nodes):
            return state.params
"""

from __future__ import annotations

import abc
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from coterie.core.graphs import GraphSpec
from coterie.core.lineage import Lineage
from coterie.core.messages import Inbox, Message
from coterie.core.newcomers import hosts, mean_of
from coterie.core.nodes import Nodes
from coterie.core.registry import Registry

Program = Generator[Message, Inbox, Any]
GROWS = {"grows": True}  # metadata of a state field whose second axis grows with the rounds


@dataclass(frozen=True)
class State:
    """The state of algorithms that keep one model a node.

    A state is a frozen dataclass of tensors whose first axis is the node or, where `replica_field`
    says so, the replica. A field named `choice` is recorded every round.
    """

    params: Tensor  # [m, P]


def replica_field() -> Any:
    """A state field that is equal on all nodes of a replica: first axis = replica."""
    return field(metadata={"axis": "replica"})


class Algorithm(abc.ABC):
    """A frozen dataclass whose fields are the hyper-parameters."""

    # the registered model that it is made for; with another it is a simpler algorithm
    made_for: ClassVar[str] = ""
    # True: it reads gradients off local steps, so these must be plain ones (SGD, no momentum)
    reads_steps: ClassVar[bool] = False

    @property
    def first_choice(self) -> int:
        """The round, counted from 0, in which nodes first choose a head or model by their data."""
        return 0

    @abc.abstractmethod
    def start(self, nodes: Nodes) -> Any:
        """The state before the first round."""

    @abc.abstractmethod
    def round(self, t: int, state: Any, nodes: Nodes) -> Program:
        """One communication round: yields messages, is sent inboxes, returns the next state."""

    @abc.abstractmethod
    def personal(self, state: Any, nodes: Nodes) -> Tensor:
        """The model each node would deploy: [m, P]."""

    def finish(self, t: int, state: Any, nodes: Nodes) -> Program | None:
        """A last program after the final round, such as an all-reduce; None: there is none."""
        return None

    def adopt(self, state: Any, nodes: Nodes, newcomers: Nodes) -> Tensor | None:
        """The models [q, P] of nodes that did not train with the others; None: they get none.

        `state` and `nodes` are those of all nodes. By default newcomers take the mean of what some
        random nodes would deploy.
        """
        return mean_of(self.personal(state, nodes), hosts(nodes, newcomers))

    def head_losses(self, state: Any, nodes: Nodes) -> Tensor | None:
        """The loss of each of a node's heads on all its train data: [m, k]; None: no heads."""
        return None

    def lineage(self, state: Any) -> Lineage | None:
        """The models that the last round brought forth; None: there is no family of models."""
        return None

    def concerns(self, state: Any) -> list[str]:
        """What the last round left out because it did not verify, and whose it was: for a log."""
        return []

    def graph_spec(self) -> GraphSpec | None:
        """The graph the rounds use, so that it can be checked before the first one."""
        return None


algorithms: Registry[Algorithm] = Registry("algorithm", base=Algorithm)
