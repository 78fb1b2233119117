"""MNIST and Fashion-MNIST, in the IDX files their authors gave out."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from coterie.data.home import Place
from coterie.data.source import Dataset, Split, sources
from coterie.errors import InputError


@sources.register("mnist")
@dataclass(frozen=True)
class Mnist:
    """Hand-written digits, 28x28 grey, 10 classes, 60,000 + 10,000 samples."""

    place: ClassVar[Place] = Place("mnist", "mnist")

    def load(self) -> Dataset:
        """The four IDX files, raw or gzipped."""
        folder = self.place.require()
        train, test = read_split(folder, "train"), read_split(folder, "t10k")
        return Dataset("mnist", train, test, 10, (0.1307,), (0.3081,))


@sources.register("fashion-mnist")
@dataclass(frozen=True)
class FashionMnist:
    """Pieces of clothing, 28x28 grey, 10 classes, 60,000 + 10,000 samples."""

    place: ClassVar[Place] = Place(
        "fashion-mnist",
        "fashion-mnist",
        system=Path("/usr/share/datasets/fashion-mnist"),
        advice="on Debian: apt-get install dataset-fashion-mnist",
    )
    mean: float = 0.2860  # of pixels in 0..1, taken away before training
    std: float = 0.3530  # by which they are then divided

    def __post_init__(self) -> None:
        if not self.std > 0:
            raise InputError(f"std must be above 0, got {self.std:g}")

    def load(self) -> Dataset:
        """The four IDX files, raw or gzipped."""
        folder = self.place.require()
        train, test = read_split(folder, "train"), read_split(folder, "t10k")
        return Dataset("fashion-mnist", train, test, 10, (self.mean,), (self.std,))


def read_split(folder: Path, stem: str) -> Split:
    """The images and labels of one split."""
    images = read_idx(_file(folder, f"{stem}-images-idx3-ubyte"), 3)
    labels = read_idx(_file(folder, f"{stem}-labels-idx1-ubyte"), 1)
    return Split(images[:, None], labels.astype(np.int64))


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise InputError(f"{folder} has neither {name} nor {name}.gz; fetch the data set again")


def read_idx(path: Path, axes: int) -> np.ndarray:
    """The bytes of an IDX file, with as many axes as it must have."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}; fetch it again") from None
    header = 4 + 4 * axes
    if len(data) < header or data[:4] != bytes([0, 0, 8, axes]):
        raise InputError(
            f"{path} is no IDX file of bytes with {axes} axes: it starts with "
            f"{data[:4].hex(' ') or 'nothing'}; fetch it again"
        )
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", axes, offset=4))
    wanted = int(np.prod(shape, dtype=object))
    if len(data) - header != wanted:
        raise InputError(
            f"{path} is cut short or too long: {wanted} bytes expected after the header, "
            f"got {len(data) - header}; fetch it again"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()
