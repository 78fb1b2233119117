"""Testing many models: rows that are equal are scored once; how far they are from their mean."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core.engine import Engine, Scores
from coterie.core.samples import Samples

AT_ONCE = 64  # models whose distances are taken together: a copy of them is made
REMEMBERED = 256 << 20  # bytes of models that one evaluation keeps in mind, at most 64 of them

Mark = tuple[int, ...]
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size in bytes


class Judge:
    """Scores the rows of one evaluation, some at a time; models that come again cost nothing."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.room = min(max(REMEMBERED // (8 * max(engine.layout.size, 1)), 1), 64)
        self.seen: dict[Mark, tuple[Tensor, Scores]] = {}  # a model, and its scores: one row

    def test(self, params: Tensor, samples: Samples) -> Scores:
        """Loss and confusion of each row over all its samples."""
        if not len(params):
            return self.engine.scores(params, samples)
        first, which, marks = distinct(params, samples)
        rows = list(zip(first.tolist(), map(tuple, marks.tolist()), strict=True))
        fresh = [row for row, mark in rows if not self._knows(mark, params[row])]
        where = torch.tensor(fresh, dtype=torch.int64).to(params.device)
        scores = self.engine.scores(params[where], samples[where])
        place = {row: number for number, row in enumerate(fresh)}
        if len(fresh) < len(rows):
            alone = [
                _only(scores, place[row]) if row in place else self.seen[mark][1]
                for row, mark in rows
            ]
            scores, place = _joined(alone), {row: number for number, (row, _) in enumerate(rows)}
        for row, mark in rows[: self.room - len(self.seen)]:
            self.seen.setdefault(mark, (params[row].clone(), _only(scores, place[row])))
        return _only(scores, which)

    def _knows(self, mark: Mark, model: Tensor) -> bool:
        return mark in self.seen and torch.equal(self.seen[mark][0], model)


def _only(scores: Scores, rows: Tensor | int) -> Scores:
    """The scores of some rows; of one row where they are a number."""
    some = slice(rows, rows + 1) if isinstance(rows, int) else rows
    return Scores(scores.loss[some], None if scores.confusion is None else scores.confusion[some])


def _joined(scores: list[Scores]) -> Scores:
    counts = [s.confusion for s in scores if s.confusion is not None]
    return Scores(torch.cat([s.loss for s in scores]), torch.cat(counts) if counts else None)


def distinct(params: Tensor, samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
    """The first of rows that are equal in model and samples, who stands for whom, and a mark each.

    Rows that are equal have equal marks; those of different rows are nearly always different.
    """
    everyone = torch.arange(len(params), device=params.device)
    model = params[:1] if params.stride(0) == 0 else params  # one model for all
    bits = model.view(_INTEGERS[model.element_size()])  # whole numbers add up alike in any order
    some = (bits, bits[:, ::2], bits[:, ::3], bits[:, : bits.shape[1] // 2])
    sums = torch.stack([columns.sum(1) for columns in some], dim=1).expand(len(params), -1)
    marks = torch.cat([sums, torch.stack([samples.start, samples.count], 1).to(sums)], dim=1)
    _, which = torch.unique(marks, dim=0, return_inverse=True)
    first = torch.full_like(everyone, len(params)).scatter_reduce_(0, which, everyone, "amin")
    first = first[: int(which.max()) + 1]
    if model is params and not torch.equal(params, params[first[which]]):
        return everyone, everyone, marks  # equal marks of different rows, or NaN
    return first, which, marks[first]


def consensus_distance(models: Tensor, n: int) -> list[float]:
    """The root of the mean squared distance of n nodes' models from their mean, by replica."""
    found = []
    for rows in models.split(n):  # [n, P]
        mean = rows.mean(0)
        squares = [(some - mean).square().sum(1) for some in rows.split(AT_ONCE)]
        found.append(torch.cat(squares).double().mean().sqrt())
    return torch.stack(found).tolist() if found else []
