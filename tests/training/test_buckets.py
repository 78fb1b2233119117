"""Many row counts, few sizes: padding wastes little and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core import LocalWork
from coterie.core.engine import Work
from coterie.training.buckets import Sizes, bucket, even, padded, padded_work
from coterie.training.optimizers import SGD, Adam
from coterie.training.stacked import StackedEngine

from ..world import World, normed

ROWS = st.integers(0, 100_000)
MOST = st.integers(1, 5000)


def test_the_sizes_are_few() -> None:
    sizes = sorted({bucket(rows) for rows in range(1, 65)})
    few = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]
    assert sizes == few
    assert len({bucket(rows) for rows in range(1, 10_000)}) < 50


@given(ROWS)
def test_a_size_holds_its_rows_and_wastes_at_most_a_quarter(rows: int) -> None:
    assert rows <= bucket(rows) <= 1.25 * rows
    assert bucket(bucket(rows)) == bucket(rows)


@given(ROWS, MOST)
def test_a_size_never_exceeds_what_goes_together(rows: int, most: int) -> None:
    size = Sizes().of(rows, most)
    assert rows <= size <= max(rows, most)


def test_a_whole_block_is_not_padded() -> None:
    sizes = Sizes()
    assert sizes.of(100, 1000) == 112
    sizes.expect(100)
    assert sizes.of(100, 1000) == 100
    assert sizes.of(99, 1000) == 112, "other counts do not depend on what was asked before"


@given(ROWS, MOST, st.booleans())
def test_chunks_of_one_size_cover_all_rows(rows: int, most: int, exact: bool) -> None:
    sizes = Sizes()
    if exact:
        sizes.expect(rows)
    chunks = sizes.chunks(rows, most)
    assert len({part.stop - part.start for part in chunks}) <= 1
    assert all(part.start >= 0 and part.stop <= rows for part in chunks)
    reached = 0
    for part in chunks:
        assert part.start <= reached and 1 <= part.stop - part.start <= most
        reached = part.stop
    assert reached == rows
    assert len(chunks) <= -(-rows // most)


@given(ROWS, MOST)
def test_whole_blocks_are_cut_as_evenly_as_can_be(rows: int, most: int) -> None:
    sizes = Sizes()
    sizes.expect(rows)
    assert all(part.stop - part.start == even(rows, most) for part in sizes.chunks(rows, most))


def test_padding_adds_zeros_after_the_rows() -> None:
    rows = torch.arange(6.0).view(3, 2)
    assert padded(rows, 3) is rows
    assert padded(rows, 5).tolist() == [[0, 1], [2, 3], [4, 5], [0, 0], [0, 0]]
    assert padded(rows > 1, 4).dtype == torch.bool


CASES: dict[str, tuple[World, dict[str, Any]]] = {
    "momentum": (World(optimizer=SGD(0.9, 0.01)), {}),
    "adam": (World(optimizer=Adam()), {}),
    "ragged epochs": (World(counts=(10, 4, 7, 1, 9), work=LocalWork(2, None, 2.0, 0.1)), {}),
    "batch norm": (World(build=normed), {}),
    "pulls": (World(), {"correction": True, "proximal": 0.5}),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_added_change_nothing(name: str) -> None:
    world, extra = CASES[name]
    nodes = world.nodes()
    engine, params = nodes.population.engine, nodes.initial_params()
    assert isinstance(engine, StackedEngine)
    if extra.pop("correction", False):
        extra["correction"] = 0.1 * torch.ones_like(params)
    steps = nodes.steps()
    total = int(steps.max()) * world.work.batch
    order = nodes.train_data.shuffled(nodes.seed, nodes.ids, 0, "train", total)
    work = Work(nodes.train_data, order, steps, world.work.batch, nodes.lr, **extra)
    more = engine._train_chunk(padded(params, 8), padded_work(work, 8))
    assert torch.allclose(more[:5], engine.train(params, work), rtol=0, atol=1e-14)
    assert torch.equal(more[5:], torch.zeros_like(more[5:]))
    engine.sizes.exact.clear()
    assert torch.equal(engine._train_fitted(params, work), engine._train_chunk(params, work))


def test_a_population_tells_its_engine_how_many_rows_it_has() -> None:
    nodes = World(n=5, seeds=(1, 2, 3)).nodes()
    engine = nodes.population.engine
    assert isinstance(engine, StackedEngine)
    assert engine.sizes.exact == {15}
    nodes[torch.arange(4)].train(nodes.initial_params()[:4], 0)
    assert engine.sizes.exact == {15}
