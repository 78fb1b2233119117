"""Flickr-Mammals ("geo_animal"), in its public folders: CLASS/SUB-FOLDER/IMAGE."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from coterie.data.home import Place
from coterie.data.images import class_names, image_files, read_images
from coterie.data.source import Dataset, sources
from coterie.errors import InputError

SPLIT = 42  # the thesis's choice of sub-folders


@sources.register("flickr-mammals")
@dataclass(frozen=True)
class FlickrMammals:
    """Photographs of 41 mammals; a sub-folder's images are all for training or all for tests."""

    place: ClassVar[Place] = Place(
        "flickr-mammals",
        "geo_animal",
        advice="fetch Zenodo record 3676081 and unpack it there as geo_animal/CLASS/SUB-FOLDER",
        fetched=False,
    )
    size: int = 64  # side in pixels: the shorter side is resized, the longer one cropped
    test_fraction: float = 0.2  # of each class's sub-folders

    def load(self) -> Dataset:
        """The images of every class, some of its sub-folders held out for tests."""
        folder = self.place.require()
        classes = class_names(folder)
        files: tuple[list[tuple[Path, int]], ...] = ([], [])
        for label, name in enumerate(classes):
            for part, kept in zip(files, self._split(folder / name), strict=True):
                part.extend((path, label) for sub in kept for path in image_files(sub))
        train, test = (read_images(part, folder, self.size, grey=False) for part in files)
        return Dataset("flickr-mammals", train, test, len(classes), (0.5,) * 3, (0.5,) * 3)

    def _split(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """The sub-folders of a class for training and for tests."""
        from sklearn.model_selection import train_test_split

        subs = sorted(path for path in folder.iterdir() if path.is_dir())
        if len(subs) < 2:
            raise InputError(
                f"{folder} needs at least 2 sub-folders, one for tests, got {len(subs)}; "
                "the layout is geo_animal/CLASS/SUB-FOLDER/IMAGE"
            )
        train, test = train_test_split(subs, test_size=self.test_fraction, random_state=SPLIT)
        return sorted(train), sorted(test)
