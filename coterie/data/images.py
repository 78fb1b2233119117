"""Folders of images, one folder a class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from coterie.data.keyed import held_out
from coterie.data.source import Dataset, Split, sources, statistics
from coterie.errors import InputError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
TESTS = ("test", "val", "valid", "validation")  # names of the folder beside train/


@sources.register("images")
@dataclass(frozen=True)
class Images:
    """Your own images: a folder a class, at the top or under train/ and test/ (or val/)."""

    path: str  # the folder
    size: int = 64  # side in pixels: the shorter side is resized, the longer one cropped
    grey: bool = False  # one channel instead of three
    test_fraction: float = 0.2  # held out where there is no test folder
    seed: int = 0  # another seed, other samples held out

    def load(self) -> Dataset:
        """The images of the train and test folders, or of one tree cut in two."""
        root = Path(self.path).expanduser()
        if not root.is_dir():
            raise InputError(f"no folder {self.path!r}; give the path of images by class")
        tests = next((root / name for name in TESTS if (root / name).is_dir()), None)
        parted = (root / "train").is_dir()
        tree = root / "train" if parted else root
        classes = class_names(tree)
        train, test = self._splits(tree, tests if parted else None, classes)
        return Dataset(root.name, train, test, len(classes), *statistics(train.inputs))

    def _splits(self, tree: Path, tests: Path | None, classes: list[str]) -> tuple[Split, Split]:
        whole = read_tree(tree, classes, self.size, self.grey)
        if tests:
            return whole, read_tree(tests, classes, self.size, self.grey)
        train, test = held_out(len(whole), self.test_fraction, self.seed)
        return whole.take(train), whole.take(test)


def class_names(folder: Path) -> list[str]:
    """The classes of a tree: its sub-folders, by name."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != ".")
    if not names:
        raise InputError(f"{folder} has no sub-folders; put the images of each class in its own")
    return names


def read_tree(folder: Path, classes: list[str], size: int, grey: bool = False) -> Split:
    """The images of every class in the order of their names, cut to squares."""
    if size < 1:
        raise InputError(f"size must be at least 1 pixel, got {size}")
    strangers = set(class_names(folder)) - set(classes)
    if strangers:
        raise InputError(
            f"{folder} has classes the train folder has not: {', '.join(sorted(strangers))}"
        )
    files = [(path, k) for k, name in enumerate(classes) for path in image_files(folder / name)]
    return read_images(files, folder, size, grey)


def read_images(files: list[tuple[Path, int]], folder: Path, size: int, grey: bool) -> Split:
    """These files of a folder, each with its class."""
    if not files:
        raise InputError(f"{folder} has no images ({', '.join(sorted(SUFFIXES))})")
    pixels = np.empty((len(files), 1 if grey else 3, size, size), dtype=np.uint8)
    for row, (path, _) in enumerate(files):
        pixels[row] = read_image(path, size, grey)
    return Split(pixels, np.array([label for _, label in files], dtype=np.int64))


def image_files(folder: Path) -> list[Path]:
    """The images below a folder, in the order of their names."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())


def read_image(path: Path, size: int, grey: bool) -> np.ndarray:
    """One image, its shorter side resized to `size` and its middle kept: uint8 [C, size, size]."""
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if grey else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"cannot read image {path}: {error}; remove or replace it") from None
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    left, top = (width - size) // 2, (height - size) // 2
    square = np.asarray(image.crop((left, top, left + size, top + size)))
    return square.reshape(size, size, -1).transpose(2, 0, 1)
