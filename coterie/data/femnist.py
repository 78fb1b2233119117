"""FEMNIST: hand-written characters by writer, from LEAF's JSON files or one .npz file."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from coterie.data.home import Place
from coterie.data.leaf import LEAF, Division, Parts, joined, read_leaf, same_users
from coterie.data.source import Dataset, Split, sources
from coterie.errors import InputError

NEEDED = ("x", "y", "writer", "split")


@sources.register("femnist")
@dataclass(frozen=True)
class Femnist:
    """Characters by writer, 28x28 grey, 62 classes (LEAF's); use with partition 'natural'."""

    place: ClassVar[Place] = Place(
        "femnist",
        "femnist",
        advice=f"run LEAF's data/femnist/preprocess.sh ({LEAF}) and put its data/train and "
        "data/test into the folder femnist, or a femnist.npz (docs/configuration.md)",
        fetched=False,
    )
    split: Literal["given", "user"] = "given"  # the files' own; user: tests are by other writers
    test_fraction: float = 0.2  # of the writers, where the split is by user
    seed: int = 0  # another seed, other writers held out

    def load(self) -> Dataset:
        """All characters; white is 1 and ink 0, as in LEAF."""
        folder = self.place.require()
        packed = folder / "femnist.npz"
        parts = read_packed(packed) if packed.is_file() else read_leaf(folder, images)
        if self.split == "user":
            parts = Division(True, self.test_fraction, self.seed).of(joined(parts))
        return Dataset("femnist", *parts, 62, (0.0,), (1.0,), per_user_test=same_users(parts))


def images(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """A user's samples: rows of 784 numbers k / 255, and their classes."""
    pixels = np.asarray(x, dtype=np.float64).reshape(len(x), 1, 28, 28)
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError(f"pixels must be in 0..1, got {pixels.min():g}..{pixels.max():g}")
    return np.round(255 * pixels).astype(np.uint8), np.asarray(y, dtype=np.int64)


def read_packed(path: Path) -> Parts:
    """The splits of an .npz file with x [N, 28, 28], y, writer and split (0: train, 1: test)."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            x, y, writer, split = (file[name] for name in NEEDED)
    except KeyError as error:
        raise InputError(f"{path} needs {', '.join(NEEDED)}: {error.args[0]}") from None
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}; fetch it again") from None
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28):
        raise InputError(f"{path}: x must be uint8 [N, 28, 28], got {x.dtype} {list(x.shape)}")
    if not len(x) == len(y) == len(writer) == len(split):
        raise InputError(f"{path}: x, y, writer and split differ in length; fetch it again")
    whole = Split(x[:, None], y.astype(np.int64), writer.astype(np.int64))
    return whole.take(np.flatnonzero(split == 0)), whole.take(np.flatnonzero(split == 1))
