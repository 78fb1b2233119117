"""The hand-written digits that come with scikit-learn: small, and always there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.data.keyed import held_out
from coterie.data.source import Dataset, Split, sources


@sources.register("digits")
@dataclass(frozen=True)
class Digits:
    """Hand-written digits, 8x8 grey, 10 classes, 1,437 + 360 samples; built in."""

    def load(self) -> Dataset:
        """The digits with their values 0..16 spread over 0..255; a fifth is for tests."""
        from sklearn.datasets import load_digits

        values, labels = load_digits(return_X_y=True)
        images = np.round(values * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
        whole = Split(images, labels.astype(np.int64))
        train, test = held_out(len(whole), 0.2, seed=0)
        return Dataset("digits", whole.take(train), whole.take(test), 10, (0.5,), (0.5,))
