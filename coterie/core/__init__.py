"""The vocabulary in which algorithms are written."""

from coterie.core.algorithm import (
    GROWS,
    Algorithm,
    Program,
    State,
    algorithms,
    replica_field,
)
from coterie.core.draws import draw, pick_lowest, uniform
from coterie.core.federated import Cohort, Federated, Nothing
from coterie.core.graphs import Full, GraphSpec, Pull, Push, Regular, Ring, graphs, regular
from coterie.core.messages import Fetch, Inbox, Listen, Send, mean, mix
from coterie.core.nodes import LocalWork, Nodes, Population
from coterie.core.params import Layout

__all__ = [
    "GROWS",
    "Algorithm",
    "Cohort",
    "Federated",
    "Fetch",
    "Full",
    "GraphSpec",
    "Inbox",
    "Layout",
    "Listen",
    "LocalWork",
    "Nodes",
    "Nothing",
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
    "mean",
    "mix",
    "pick_lowest",
    "regular",
    "replica_field",
    "uniform",
]
