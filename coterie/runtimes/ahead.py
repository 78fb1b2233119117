"""Graphs of later rounds, drawn by a thread while a GPU computes the present one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from coterie.core.drawing import Ahead, Draw
from coterie.core.graphs import Graph, GraphSpec
from coterie.core.nodes import Population

DEPTH = 4  # rounds that are drawn ahead


class DrawnAhead(Ahead):
    """Draws the graphs that were asked for in round t for the rounds after it, up to the last."""

    def __init__(self, rounds: int, depth: int = DEPTH) -> None:
        self.rounds = rounds
        self.depth = depth
        self.drawing: dict[tuple[GraphSpec, int], Future[Graph]] = {}
        self.thread = ThreadPoolExecutor(1, "graphs")

    def take(self, spec: GraphSpec, t: int, draw: Draw) -> Graph:
        begun = self.drawing.pop((spec, t), None)
        for later in range(t + 1, min(t + 1 + self.depth, self.rounds)):
            if (spec, later) not in self.drawing:
                self.drawing[spec, later] = self.thread.submit(draw, spec, later)
        for old in [key for key in self.drawing if key[1] < t]:  # nobody asked for these
            self.drawing.pop(old).cancel()
        return draw(spec, t) if begun is None else begun.result()

    def close(self) -> None:
        """End the thread; what it has not begun is never drawn."""
        self.thread.shutdown(cancel_futures=True)


@contextmanager
def drawing_ahead(population: Population, rounds: int) -> Iterator[None]:
    """Inside, a thread draws ahead; not where the CPU trains, which has no time to spare."""
    if population.engine.device.type == "cpu":
        yield
        return
    ahead = DrawnAhead(rounds)
    population.drawing.ahead = ahead
    try:
        yield
    finally:
        population.drawing.ahead = None
        ahead.close()
