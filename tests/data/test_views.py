"""What a cluster sees is what its shifts make of the data, and nothing is stored twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie.core.samples import Pool
from coterie.data import Dataset, Split
from coterie.data.shifts import Blur, Colour, Labels, Noise, NoShift, Rotation, Shift, Swap
from coterie.data.views import View, make_pool, make_views

Shifts = tuple[Shift, ...]
HALF, QUARTER = Rotation(180), Rotation(90)


def split(height: int = 6, width: int = 6, count: int = 12) -> Split:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, 3, height, width)).astype(np.uint8)
    return Split(images, np.arange(count) % 4, np.arange(count) % 5)


def pooled(whole: Split, clusters: list[Shifts]) -> tuple[list[View], Pool]:
    views = make_views(whole, clusters, 7)
    data = Dataset("random", whole, whole, 4, (0.5,) * 3, (0.5,) * 3)
    return views, make_pool(data, views)


def literal(whole: Split, shifts: Shifts) -> Split:
    for shift in shifts:
        whole = shift.apply(whole, 7)
    return whole


CLUSTERS: dict[str, list[Shifts]] = {
    "nothing": [()],
    "one turned": [(), (HALF,)],
    "all turned": [(HALF,), (QUARTER,), (Rotation(270),), (Rotation(0),)],
    "turned twice": [(QUARTER, HALF), (QUARTER, QUARTER), (NoShift(),)],
    "fewer labels": [(Labels((0, 1)),), (Labels((2,)), HALF)],
    "fewer labels than there are": [(Labels((3,)),)],
    "swapped labels": [(Swap(((0, 1),)),), (HALF, Swap(((2, 3),)), Labels((1, 3)))],
    "changed pixels": [(Blur(1.0),), (Noise(0.2), HALF), (Noise(0.2),)],
    "turned before pixels change": [(HALF, Blur(1.0)), (QUARTER, Noise(0.1), QUARTER)],
    "changed pixels and fewer labels": [(), (Labels((0, 2)), Colour(), HALF)],
    "turned by little": [(), (Rotation(30),)],
}


@pytest.mark.parametrize("size", [(6, 6), (4, 6)])
@pytest.mark.parametrize("name", CLUSTERS)
def test_every_view_shows_what_its_shifts_make(name: str, size: tuple[int, int]) -> None:
    whole = split(*size)
    views, pool = pooled(whole, CLUSTERS[name])
    for view, shifts in zip(views, CLUSTERS[name], strict=True):
        wanted = literal(whole, shifts)
        ids = torch.arange(view.start, view.start + len(wanted))
        assert np.array_equal(pool.show(ids).numpy(), wanted.inputs)
        assert np.array_equal(pool.targets[ids].numpy(), wanted.targets)
        assert np.array_equal(view.split.targets, wanted.targets)
        assert np.array_equal(view.split.users, wanted.users)
        assert np.array_equal(whole.users[view.origin], wanted.users)


@pytest.mark.parametrize(
    "name, images",
    [
        ("nothing", 12),
        ("one turned", 12),
        ("all turned", 12),
        ("turned twice", 12),
        ("fewer labels", 9),
        ("fewer labels than there are", 3),
        ("swapped labels", 12),
        ("changed pixels", 24),
        ("changed pixels and fewer labels", 18),
        ("turned by little", 24),
    ],
)
def test_images_are_stored_once(name: str, images: int) -> None:
    assert len(pooled(split(), CLUSTERS[name])[1].inputs) == images


def test_a_pool_of_untouched_images_is_the_data_set_itself() -> None:
    whole = split()
    pool = pooled(whole, [(), ()])[1]
    assert pool.stored is None and pool.turn is None
    assert np.shares_memory(pool.inputs.numpy(), whole.inputs)


def test_images_that_must_not_be_written_are_copied() -> None:
    whole = split()
    whole.inputs.setflags(write=False)
    assert not np.shares_memory(pooled(whole, [()])[1].inputs.numpy(), whole.inputs)


def test_tables_are_shared_too() -> None:
    whole = Split(np.eye(6, dtype=np.float32), np.arange(6) % 2)
    views = make_views(whole, [(), (Labels((1,)),), (Swap(),)], 0)
    pool = make_pool(Dataset("table", whole, whole, 2, (0.0,), (1.0,)), views)
    assert len(pool.inputs) == 6 and pool.turn is None
    assert torch.equal(pool.show(torch.arange(6, 9)), pool.inputs[[1, 3, 5]])
