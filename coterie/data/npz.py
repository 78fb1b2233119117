"""Your own arrays in one .npz file."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.data.source import Dataset, as_split, from_arrays, sources
from coterie.errors import InputError

NEEDED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("user_train", "user_test")


@sources.register("npz")
@dataclass(frozen=True)
class Npz:
    """Your own arrays: a .npz file with x_train, y_train, x_test, y_test (and user_...)."""

    path: str  # the file

    def load(self) -> Dataset:
        """The arrays; whole-number targets are classes, others are regression's."""
        path = Path(self.path).expanduser()
        arrays = _read(path)
        missing = [name for name in NEEDED if name not in arrays]
        if missing:
            raise InputError(
                f"{path} has no array {', '.join(missing)}; it needs {', '.join(NEEDED)}"
            )
        try:
            train, test = (
                as_split(arrays[f"x_{part}"], arrays[f"y_{part}"], arrays.get(f"user_{part}"))
                for part in ("train", "test")
            )
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return from_arrays(path.stem, train, test)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise InputError(f"no file {str(path)!r}; give the path of a .npz file")
    if not zipfile.is_zipfile(path):
        raise InputError(f"cannot read {path}: it is no .npz file; write it with numpy.savez")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in (*NEEDED, *OPTIONAL) if name in file}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}; write it with numpy.savez") from None
