"""The final all-reduce that several papers run once after the last round."""

from __future__ import annotations

from coterie.core import Full, Nodes, Program, Send, State, mix


def average_all(t: int, state: State, nodes: Nodes, sealed: bool = False) -> Program:
    """Everybody averages everybody's model."""
    everybody, apart = nodes.graph(Full(), t), nodes.layout.buffers
    inbox = yield Send({"params": state.params}, along=everybody, sealed=sealed, apart=apart)
    return State(mix(state.params, inbox, "params"))
