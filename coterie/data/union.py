"""Several data sets as one, whose classes follow one another."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.data.source import Dataset, Split, load, sources, statistics
from coterie.errors import InputError


@sources.register("union")
@dataclass(frozen=True)
class Union:
    """Other data sets of one shape, one after the other: the first has classes 0 to 9, ..."""

    of: list[str] = field(default_factory=lambda: ["mnist", "fashion-mnist"])  # their names
    unit: bool = False  # pixels stay in 0..1 instead of having mean 0 and deviation 1

    def load(self) -> Dataset:
        """All samples; a sample keeps its class, raised by the classes of the data sets before."""
        if not self.of:
            raise InputError("data set 'union': no data sets were given; set of = ['mnist', ...]")
        parts = [load(name) for name in self.of]
        _check(parts)
        firsts = np.cumsum([0, *(part.classes for part in parts)])
        train = _joined([part.train for part in parts], firsts)
        test = _joined([part.test for part in parts], firsts)
        mean, std = statistics(train.inputs)
        if self.unit:
            mean, std = (0.0,) * len(mean), (1.0,) * len(std)
        name = "+".join(part.name for part in parts)
        return Dataset(name, train, test, int(firsts[-1]), mean, std)


def _check(parts: list[Dataset]) -> None:
    shapes = {part.name: part.train.inputs.shape[1:] for part in parts}
    if len(set(shapes.values())) > 1:
        raise InputError(f"data set 'union' needs samples of one shape, got {shapes}")
    if not all(part.classes for part in parts):
        raise InputError("data set 'union' needs classes, and one of its data sets has none")


def _joined(splits: list[Split], firsts: np.ndarray) -> Split:
    targets = [s.targets + first for s, first in zip(splits, firsts, strict=False)]
    return Split(np.concatenate([s.inputs for s in splits]), np.concatenate(targets))
