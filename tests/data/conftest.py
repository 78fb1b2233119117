"""Tiny data sets in their official layouts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def idx_bytes(array: np.ndarray) -> bytes:
    """An array of bytes as an IDX file."""
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, count: int = 20, packed: bool = False) -> None:
    """The four files of MNIST, raw or gzipped."""
    folder.mkdir(parents=True)
    for stem in ("train", "t10k"):
        pixels = np.arange(count * 28 * 28).reshape(count, 28, 28) % 256
        arrays = {"images-idx3": pixels, "labels-idx1": np.arange(count) % 10}
        for name, array in arrays.items():
            data = idx_bytes(array)
            path = folder / f"{stem}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)


def write_cifar10(folder: Path, count: int = 10) -> None:
    """The six binary batches; batch i has only pixels of value i, the test batch of value 9."""
    folder.mkdir(parents=True)
    batches = [(f"data_batch_{i}.bin", i) for i in range(1, 6)] + [("test_batch.bin", 9)]
    for name, value in batches:
        records = np.full((count, 3073), value, dtype=np.uint8)
        records[:, 0] = np.arange(count) % 10
        (folder / name).write_bytes(records.tobytes())


def write_images(folder: Path, count: int = 3, size: tuple[int, int] = (12, 8)) -> None:
    """One folder a class: `cat` is red, `dog` is blue."""
    for name, colour in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", size, colour).save(folder / name / f"{i}.png")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder that COTERIE_DATA names, and an empty user cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("COTERIE_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder
