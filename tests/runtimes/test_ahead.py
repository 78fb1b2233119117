"""Graphs drawn by a thread are the same graphs, and the thread ends with the run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from coterie.algorithms import EpidemicLearning
from coterie.core import Nodes
from coterie.core.graphs import Edges, Graph, GraphSpec, Ring, regular
from coterie.runtimes.ahead import DEPTH, DrawnAhead, drawing_ahead
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation

from ..world import World


@dataclass(frozen=True)
class Noted(GraphSpec):
    """A ring that notes which rounds were drawn, and by whom."""

    fails_at: int = -1
    rounds: list[tuple[int, str]] = field(default_factory=list, compare=False, hash=False)

    def changes(self) -> bool:
        return True

    def edges(self, n: int, seed: int, t: int) -> Edges:
        self.rounds.append((t, threading.current_thread().name.split("_")[0]))
        if t == self.fails_at:
            raise ArithmeticError(f"no graph in round {t}")
        return Ring().edges(n, seed, t)


def same(one: Graph, other: Graph) -> bool:
    return torch.equal(one.source, other.source) and torch.equal(one.target, other.target)


def thread_names() -> set[str]:
    return {thread.name.split("_")[0] for thread in threading.enumerate()}


class Device:
    """Stands for a GPU: the engine of these nodes says that it is somewhere else."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.device = torch.device("meta")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def away(nodes: Nodes) -> Any:
    return replace(nodes.population, engine=Device(nodes.population.engine))


def test_graphs_drawn_ahead_are_the_same() -> None:
    plain, ahead = World(n=8).nodes().population, away(World(n=8).nodes())
    with drawing_ahead(ahead, 12):
        for t in range(12):
            assert same(ahead.graph(regular(4), t), plain.graph(regular(4), t))
            assert same(ahead.graph(Ring(), t), plain.graph(Ring(), t))


def test_a_run_that_draws_ahead_gives_the_same_models() -> None:
    models = []
    for ahead in (None, DrawnAhead(5)):
        nodes = World(n=6).nodes()
        nodes.population.drawing.ahead = ahead
        simulation = Simulation(EpidemicLearning(degree=2), [nodes], DirectExchange(6))
        simulation.start()
        for t in range(5):
            simulation.round(t)
        models.append(simulation.states[0].params)
        if ahead is not None:
            ahead.close()
    assert torch.equal(*models)


def test_only_the_first_round_is_drawn_by_the_one_who_asks() -> None:
    spec, nodes = Noted(), World(n=8).nodes()
    with drawing_ahead(away(nodes), 20):
        population = away(nodes)  # shares what is drawn
        for t in range(20):
            population.graph(spec, t)
    assert sorted(t for t, _ in spec.rounds) == list(range(20)), "no round twice, none too many"
    assert {t for t, who in spec.rounds if who != "graphs"} == {0}


def test_a_round_in_the_middle_may_be_the_first() -> None:
    spec, population = Noted(), away(World(n=8).nodes())
    with drawing_ahead(population, 11):
        for t in (7, 8, 10):
            assert same(population.graph(spec, t), World(n=8).nodes().graph(Ring(), 0))
    assert max(t for t, _ in spec.rounds) == 10


def test_no_more_rounds_are_kept_than_asked() -> None:
    ahead = DrawnAhead(1000, depth=3)
    draw = World(n=8).nodes().population._draw
    for t in range(30):
        ahead.take(Noted(), t, draw)
        ahead.take(regular(2), t, draw)
        assert {when for _, when in ahead.drawing} == {t + 1, t + 2, t + 3}
    ahead.take(Ring(), 40, draw)
    assert len(ahead.drawing) == 3
    ahead.close()


def test_what_drawing_raised_is_raised_in_its_round() -> None:
    spec, population = Noted(fails_at=3), away(World(n=8).nodes())
    with pytest.raises(ArithmeticError, match="no graph in round 3"), drawing_ahead(population, 9):
        for t in range(9):
            population.graph(spec, t)
            assert t < 3
    assert "graphs" not in thread_names()


def test_a_failure_that_nobody_asks_for_is_never_raised() -> None:
    spec, population = Noted(fails_at=2), away(World(n=8).nodes())
    with drawing_ahead(population, 9):
        population.graph(spec, 0)
        population.graph(spec, 1)


@pytest.mark.parametrize("error", [None, KeyError("stop")])
def test_the_thread_ends_with_the_run(error: Exception | None) -> None:
    population = away(World(n=8).nodes())
    try:
        with drawing_ahead(population, 10**6):
            population.graph(Noted(), 0)
            assert "graphs" in thread_names()
            if error:
                raise error
    except KeyError:
        assert error
    assert "graphs" not in thread_names()
    assert population.drawing.ahead is None


def test_a_cpu_that_trains_draws_for_itself() -> None:
    spec, nodes = Noted(), World(n=8).nodes()
    with drawing_ahead(nodes.population, 5):
        nodes.graph(spec, 0)
        assert nodes.population.drawing.ahead is None
    assert [t for t, _ in spec.rounds] == [0]


def test_the_last_rounds_are_not_drawn_in_vain() -> None:
    spec, population = Noted(), away(World(n=8).nodes())
    with drawing_ahead(population, DEPTH):
        for t in range(DEPTH):
            population.graph(spec, t)
    assert np.array_equal(sorted(t for t, _ in spec.rounds), np.arange(DEPTH))
