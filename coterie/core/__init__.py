"""The vocabulary in which algorithms are written."""

from coterie.core.algorithm import Algorithm, Program, State, algorithms, replica_field
from coterie.core.draws import draw, pick_lowest, uniform
from coterie.core.graphs import Full, GraphSpec, Pull, Push, Regular, Ring, graphs, regular
from coterie.core.messages import Fetch, Inbox, Listen, Send, mix
from coterie.core.nodes import LocalWork, Nodes, Population
from coterie.core.params import Layout

__all__ = [
    "Algorithm",
    "Fetch",
    "Full",
    "GraphSpec",
    "Inbox",
    "Layout",
    "Listen",
    "LocalWork",
    "Nodes",
    "Population",
    "Program",
    "Pull",
    "Push",
    "Regular",
    "Ring",
    "Send",
    "State",
    "algorithms",
    "draw",
    "graphs",
    "mix",
    "pick_lowest",
    "regular",
    "replica_field",
    "uniform",
]
