"""Made data: one cloud of points a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.data.keyed import held_out, normals
from coterie.data.source import Dataset, Split, sources
from coterie.errors import InputError


@sources.register("synthetic")
@dataclass(frozen=True)
class Synthetic:
    """Gaussian clouds of points, one a class, as a table; made on the spot."""

    samples: int = 2000  # samples in all; a fifth is for tests
    classes: int = 4  # clouds, equally large
    features: int = 16  # columns
    noise: float = 1.0  # deviation of a cloud; the centres have deviation 1
    seed: int = 0  # another seed, other points

    def load(self) -> Dataset:
        """The points about their centres."""
        if min(self.samples // max(self.classes, 1), self.classes, self.features) < 1:
            raise InputError(
                "data set 'synthetic' needs at least one class, one feature and one sample a "
                f"class; got {self.classes}, {self.features} and {self.samples} samples in all"
            )
        labels = np.arange(self.samples, dtype=np.int64) % self.classes
        centres = normals(self.features, self.seed, "synthetic/centre", np.arange(self.classes))
        spread = normals(self.features, self.seed, "synthetic/point", np.arange(self.samples))
        points = (centres[labels] + self.noise * spread).astype(np.float32)
        train, test = held_out(self.samples, 0.2, self.seed)
        whole = Split(points, labels)
        made = whole.take(train), whole.take(test)
        return Dataset("synthetic", *made, self.classes, (0.0,), (1.0,))
