"""The simulation: all nodes of all replicas in one process, as one block or several."""

from __future__ import annotations

from typing import Any

from coterie.core.algorithm import Algorithm
from coterie.core.nodes import Nodes
from coterie.runtimes.lockstep import Exchange, play


class Simulation:
    """An algorithm on blocks that together hold the whole population."""

    def __init__(self, algorithm: Algorithm, blocks: list[Nodes], exchange: Exchange) -> None:
        self.algorithm = algorithm
        self.blocks = blocks
        self.exchange = exchange
        self.states: list[Any] = []

    def start(self) -> None:
        """Make the state before the first round."""
        self.states = [self.algorithm.start(nodes) for nodes in self.blocks]

    def round(self, t: int) -> None:
        """Play round t."""
        programs = [
            self.algorithm.round(t, state, nodes)
            for state, nodes in zip(self.states, self.blocks, strict=True)
        ]
        self.states = play(t, [nodes.key for nodes in self.blocks], programs, self.exchange)

    def finish(self, t: int) -> bool:
        """Play the algorithm's last program; False where it has none."""
        programs = [
            self.algorithm.finish(t, state, nodes)
            for state, nodes in zip(self.states, self.blocks, strict=True)
        ]
        last = [program for program in programs if program is not None]
        if not last:
            return False
        self.states = play(t, [nodes.key for nodes in self.blocks], last, self.exchange)
        return True
