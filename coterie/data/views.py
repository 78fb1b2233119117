"""A split as each cluster sees it, and the one pool that holds what all of them see.

Shifts that change no pixel values (turns by 90 degrees, other labels, fewer samples) need no images
of their own: a view says which stored image each sample is and where its pixels come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from coterie.core.samples import Pool
from coterie.data.shifts import Shift, moved_pixels
from coterie.data.source import Dataset, Split

Shifts = tuple[Shift, ...]


@dataclass(frozen=True)
class View:
    """A split as one cluster sees it."""

    split: Split  # targets and users; the inputs are in `images`
    origin: np.ndarray  # [N] the samples' numbers in the original split
    start: int  # first row in the pool of all views
    images: np.ndarray  # inputs as they are stored, maybe with other views
    rows: np.ndarray  # [N] which of `images` each sample is
    pixels: np.ndarray  # [H * W] the stored pixel that comes to each place


def make_views(split: Split, clusters: Sequence[Shifts], seed: int) -> list[View]:
    """The split under each cluster's shifts; clusters with equal shifts share a view."""
    made: dict[Shifts, View] = {}
    stored: dict[Shifts, Split] = {}
    start = 0
    for shifts in clusters:
        if shifts in made:
            continue
        first = _first_that_only_moves(shifts, split.inputs.shape[1:])
        before, after = shifts[:first], shifts[first:]
        if before not in stored:
            numbered = Split(split.inputs, split.targets, np.arange(len(split)))
            stored[before] = _shifted(numbered, before, seed)
        made[shifts] = _view(split, stored[before], after, seed, start)
        start += len(made[shifts].rows)
    return [made[shifts] for shifts in clusters]


def _first_that_only_moves(shifts: Shifts, shape: tuple[int, ...]) -> int:
    """From here on no shift changes the values of pixels."""
    changing = [n for n, shift in enumerate(shifts) if moved_pixels(shift, shape) is None]
    return changing[-1] + 1 if changing else 0


def _shifted(split: Split, shifts: Shifts, seed: int) -> Split:
    for shift in shifts:
        split = shift.apply(split, seed)
    return split


def _view(original: Split, stored: Split, shifts: Shifts, seed: int, start: int) -> View:
    """What shifts that only move pixels make of stored samples, whose users are their origin."""
    assert stored.users is not None
    shape = stored.inputs.shape[1:]
    pixels = np.arange(int(np.prod(shape[1:])))
    for shift in shifts:
        moved = moved_pixels(shift, shape)
        assert moved is not None
        pixels = pixels[moved]
    # labels are changed and samples dropped on images without channels, which weigh nothing
    hollow = np.empty((len(stored), 0, *shape[1:]), stored.inputs.dtype)
    seen = _shifted(Split(hollow, stored.targets, np.arange(len(stored))), shifts, seed)
    assert seen.users is not None
    origin = stored.users[seen.users]
    users = None if original.users is None else original.users[origin]
    split = Split(np.empty((len(seen), 0), np.float32), seen.targets, users)
    return View(split, origin, start, stored.inputs, seen.users, pixels)


def make_pool(dataset: Dataset, views: Sequence[View]) -> Pool:
    """Everything that the views show, stored once."""
    distinct = list({view.start: view for view in views}.values())
    arrays = list({id(view.images): view.images for view in distinct}.values())
    first = dict(zip(map(id, arrays), np.cumsum([0, *map(len, arrays)]).tolist(), strict=False))
    rows = np.concatenate([first[id(view.images)] + view.rows for view in distinct])
    used, rows = np.unique(rows, return_inverse=True)
    inputs = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    inputs = inputs if len(used) == len(inputs) else inputs[used]
    turns, turn = np.unique([view.pixels for view in distinct], axis=0, return_inverse=True)
    plain = np.array_equal(turns, [np.arange(turns.shape[1])])
    counts = [len(view.rows) for view in distinct]
    return Pool(
        inputs=_tensor(inputs),
        targets=_tensor(np.concatenate([view.split.targets for view in distinct])),
        mean=dataset.mean,
        std=dataset.std,
        stored=None if np.array_equal(rows, np.arange(len(inputs))) else torch.from_numpy(rows),
        turn=None if plain else torch.from_numpy(np.repeat(turn.ravel(), counts)),
        turns=None if plain else torch.from_numpy(turns),
    )


def _tensor(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor, without a copy where that is allowed."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())
