"""Imagenette, ten easy classes of ImageNet, in its authors' folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.data.home import Place
from coterie.data.images import class_names, read_tree
from coterie.data.source import Dataset, sources
from coterie.errors import InputError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's


@sources.register("imagenette")
@dataclass(frozen=True)
class Imagenette:
    """Photographs of ten easy ImageNet classes, 9,469 + 3,925 samples, cut to squares."""

    place: ClassVar[Place] = Place("imagenette", "imagenette2*")
    size: int = 64  # side in pixels: the shorter side is resized, the longer one cropped

    def load(self) -> Dataset:
        """The images of train/ and val/."""
        folder = self.place.require()
        for part in ("train", "val"):
            if not (folder / part).is_dir():
                raise InputError(f"{folder} has no folder {part}; fetch the data set again")
        classes = class_names(folder / "train")
        train, test = (read_tree(folder / part, classes, self.size) for part in ("train", "val"))
        return Dataset("imagenette", train, test, len(classes), MEAN, STD)
