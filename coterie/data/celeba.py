"""CelebA by celebrity: an attribute to tell from a face, in the authors' (and LEAF's) files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from coterie.data.home import Place
from coterie.data.images import read_images
from coterie.data.leaf import Division, cut, same_users
from coterie.data.source import Dataset, sources
from coterie.errors import InputError, unknown

IMAGES, IDENTITIES, ATTRIBUTES = "img_align_celeba", "identity_CelebA.txt", "list_attr_celeba.txt"
# the five of FedCG's 32 domains
FIVE = ("Attractive", "Heavy_Makeup", "High_Cheekbones", "Mouth_Slightly_Open", "Wavy_Hair")


@sources.register("celeba")
@dataclass(frozen=True)
class CelebA:
    """Faces by celebrity, colour, 2 classes (smiling or not); use with partition 'natural'."""

    place: ClassVar[Place] = Place(
        "celeba",
        "celeba",
        advice=f"put {IMAGES}/, {IDENTITIES} and {ATTRIBUTES} of CelebA "
        "(mmlab.ie.cuhk.edu.hk/projects/CelebA.html) into the folder celeba",
        fetched=False,
    )
    size: int = 84  # side in pixels, LEAF's: the shorter side is resized, the longer one cropped
    attribute: str = "Smiling"  # what is told from a face
    min_samples: int = 5  # celebrities with fewer images are left out
    users: Literal["celebrity", "domain"] = "celebrity"  # domain: FedCG's 32, by five attributes
    domains: bool = False  # a fourth channel holds each image's domain, for FedCG's oracle
    split: Literal["sample", "user"] = "sample"  # user: tests are on other celebrities
    test_fraction: float = 0.2  # of each celebrity's images, or of the celebrities
    seed: int = 0  # another seed, others held out

    def load(self) -> Dataset:
        """The images of celebrities with enough of them."""
        folder = lists_in(self.place.require())
        faces = read_faces(folder).of_many(self.min_samples)
        labels = faces.has(self.attribute)
        files = [(path, int(label)) for path, label in zip(faces.files, labels, strict=True)]
        owner = faces.celebrity if self.users == "celebrity" else faces.domain()
        pixels = read_images(files, folder, self.size, grey=False)
        if self.domains:
            pixels = replace(pixels, inputs=marked(pixels.inputs, faces.domain()))
        division = Division(self.split == "user", self.test_fraction, self.seed)
        parts = cut(replace(pixels, users=owner), division.tested(faces.celebrity))
        channels = pixels.inputs.shape[1]
        plain = (0.0,) * channels, (1.0,) * channels
        return Dataset("celeba", *parts, 2, *plain, same_users(parts))


def marked(images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The images [N, C, H, W] with one more channel, all of whose pixels are a number [N]."""
    channel = np.broadcast_to(numbers[:, None, None, None], (len(images), 1, *images.shape[2:]))
    return np.concatenate([images, channel.astype(images.dtype)], axis=1)


@dataclass(frozen=True)
class Faces:
    """Images with whose they are and what is seen on them."""

    files: list[Path]
    celebrity: np.ndarray  # int64 [N]
    attributes: np.ndarray  # bool [N, A]
    names: list[str]  # [A]

    def has(self, attribute: str) -> np.ndarray:
        """Whether each face has an attribute: bool [N]."""
        if attribute not in self.names:
            raise unknown("attribute of data set 'celeba':", attribute, self.names)
        column: np.ndarray = self.attributes[:, self.names.index(attribute)]
        return column

    def domain(self, attributes: Sequence[str] = FIVE) -> np.ndarray:
        """The number whose binary digits are these attributes, the first the highest: [N]."""
        number = np.zeros(len(self.files), np.int64)
        for attribute in attributes:
            number = 2 * number + self.has(attribute)
        return number

    def of_many(self, least: int) -> Faces:
        """The faces of celebrities with at least so many images."""
        _, which, counts = np.unique(self.celebrity, return_inverse=True, return_counts=True)
        kept = np.flatnonzero(counts[which] >= least)
        if not len(kept):
            raise InputError(
                f"data set 'celeba': no celebrity has {least} images; use a smaller min_samples"
            )
        files = [self.files[row] for row in kept]
        return replace(
            self, files=files, celebrity=self.celebrity[kept], attributes=self.attributes[kept]
        )


def lists_in(folder: Path) -> Path:
    """Where the lists and images are: in the folder itself, or where LEAF's scripts put them."""
    tried = [folder, folder / "raw", folder / "data" / "raw"]
    for place in tried:
        if (place / IDENTITIES).is_file():
            return place
    raise InputError(
        f"data set 'celeba': no {IDENTITIES} in {', '.join(map(str, tried))}; {CelebA.place.advice}"
    )


def read_faces(folder: Path) -> Faces:
    """What the two lists say of the images, in the order of the identities."""
    owners = dict(_lines(folder / IDENTITIES, 0))
    table = _lines(folder / ATTRIBUTES, 1)
    names = [table[0][0], *table[0][1].split()]
    marks = dict(table[1:])
    missing = [file for file in owners if file not in marks]
    if missing:
        raise InputError(f"{folder / ATTRIBUTES} has no line for {missing[0]} of {IDENTITIES}")
    try:
        celebrity = np.array([int(owner) for owner in owners.values()], np.int64)
        values = np.array([[int(v) for v in marks[file].split()] for file in owners])
        attributes = values.reshape(len(owners), len(names)) > 0
    except ValueError as error:
        raise InputError(f"the lists in {folder} are not as CelebA's: {error}") from None
    return Faces([folder / IMAGES / file for file in owners], celebrity, attributes, names)


def _lines(path: Path, skip: int) -> list[tuple[str, str]]:
    """The first word and the rest of every line, after some."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[skip:]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    pairs = [(first, rest) for first, _, rest in (line.strip().partition(" ") for line in lines)]
    kept = [pair for pair in pairs if pair[0]]
    if not kept:
        raise InputError(f"{path} is empty; fetch it again")
    return kept
