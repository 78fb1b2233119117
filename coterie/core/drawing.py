"""Who draws the graph of a round, and when: once, where it is asked for first, or ahead of time."""

from __future__ import annotations

import abc
from collections.abc import Callable

from coterie.core.graphs import Graph, GraphSpec

Draw = Callable[[GraphSpec, int], Graph]


class Ahead(abc.ABC):
    """Somebody who has drawn the graph of round t while earlier rounds were played."""

    @abc.abstractmethod
    def take(self, spec: GraphSpec, t: int, draw: Draw) -> Graph:
        """The graph of round t, as `draw` gives it; what drawing raised is raised here."""


class Drawing:
    """The graphs of one round, and those that never change; a runtime may set `ahead`."""

    def __init__(self) -> None:
        self.drawn: dict[tuple[GraphSpec, int], Graph] = {}
        self.ahead: Ahead | None = None

    def graph(self, spec: GraphSpec, t: int, draw: Draw) -> Graph:
        """The graph of round t."""
        when = t if spec.changes() else -1
        if (spec, when) not in self.drawn:
            for old in [key for key in self.drawn if key[1] not in (-1, t)]:
                del self.drawn[old]
            if self.ahead is None or when == -1:
                self.drawn[spec, when] = draw(spec, t)
            else:
                self.drawn[spec, when] = self.ahead.take(spec, t, draw)
        return self.drawn[spec, when]
