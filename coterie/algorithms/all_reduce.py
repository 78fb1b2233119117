"""The final all-reduce that several papers run once after the last round."""

from __future__ import annotations

from coterie.core import Full, Nodes, Program, Send, State, mix


def average_all(t: int, state: State, nodes: Nodes, sealed: bool = False) -> Program:
    """Everybody averages everybody's model."""
    inbox = yield Send({"params": state.params}, along=nodes.graph(Full(), t), sealed=sealed)
    return State(mix(state.params, inbox, "params"))
