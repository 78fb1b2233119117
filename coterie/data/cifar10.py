"""CIFAR-10, in its authors' binary version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from coterie.data.home import Place
from coterie.data.source import Dataset, Split, sources
from coterie.errors import InputError

RECORD = 1 + 3 * 32 * 32  # bytes: a label, then the red, green and blue planes


@sources.register("cifar10")
@dataclass(frozen=True)
class Cifar10:
    """Photographs of animals and vehicles, 32x32 colour, 10 classes, 50,000 + 10,000."""

    place: ClassVar[Place] = Place("cifar10", "cifar-10-batches-bin")

    def load(self) -> Dataset:
        """The five train batches in their order, and the test batch."""
        folder = self.place.require()
        train = read_batches([folder / f"data_batch_{i}.bin" for i in range(1, 6)])
        test = read_batches([folder / "test_batch.bin"])
        return Dataset("cifar10", train, test, 10, (0.5,) * 3, (0.5,) * 3)


def read_batches(paths: list[Path]) -> Split:
    """The records of these files, one file after the other."""
    records = np.concatenate([_records(path) for path in paths])
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
    return Split(images, records[:, 0].astype(np.int64))


def _records(path: Path) -> np.ndarray:
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; fetch it again") from None
    if not len(data) or len(data) % RECORD:
        raise InputError(
            f"{path} is cut short or no CIFAR-10 batch: {len(data)} bytes are not whole records "
            f"of {RECORD}; fetch it again"
        )
    return data.reshape(-1, RECORD)
