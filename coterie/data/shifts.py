"""Shifts: what makes the data of one cluster differ from another's.

@shifts.register("mirror")
@dataclass(frozen=True)
class Mirror:
    '''Swap left and right.'''
    changes_labels: ClassVar[bool] = False

    def apply(self, split: Split, seed: int) -> Split:
        return replace(split, inputs=split.inputs[..., ::-1].copy())

    def pixels(self, shape: tuple[int, ...]) -> np.ndarray:  # optional: spares the copy
        return np.arange(shape[1] * shape[2]).reshape(shape[1:])[:, ::-1].ravel()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from coterie.core.registry import Registry
from coterie.data.keyed import normals
from coterie.data.source import Split
from coterie.errors import InputError

CHUNK = 1024  # images turned to floats at a time, which bounds memory
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
SEPIA = ((0.393, 0.769, 0.189), (0.349, 0.686, 0.168), (0.272, 0.534, 0.131))


class Shift(Protocol):
    """A registered frozen dataclass that changes samples without looking at who owns them."""

    changes_labels: ClassVar[bool]  # whether clusters then differ in labels, not in looks

    def apply(self, split: Split, seed: int) -> Split:
        """A changed copy of the samples; it may hold fewer."""


@runtime_checkable
class Moving(Protocol):
    """A shift that changes no values of pixels, so that nobody needs to store its images."""

    def pixels(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """The pixel [H * W] that comes to each place of samples [C, H, W]; None: it does change."""


def moved_pixels(shift: Shift, shape: tuple[int, ...]) -> np.ndarray | None:
    """Where pixels come from under a shift that only moves them; None for all other shifts."""
    return shift.pixels(shape) if isinstance(shift, Moving) else None


def _in_place(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape[1:])))


shifts: Registry[Shift] = Registry("shift")


@shifts.register("none")
@dataclass(frozen=True)
class NoShift:
    """Leave the samples as they are."""

    changes_labels: ClassVar[bool] = False

    def apply(self, split: Split, seed: int) -> Split:
        """The same samples."""
        return split

    def pixels(self, shape: tuple[int, ...]) -> np.ndarray:
        """Every pixel where it was."""
        return _in_place(shape)


@shifts.register("rotation")
@dataclass(frozen=True)
class Rotation:
    """Turn the images about their centre, keeping their size."""

    changes_labels: ClassVar[bool] = False
    degrees: float = 180  # counter-clockwise
    fill: int = 127  # value of pixels that come from outside; 127 is 0 once normalised by 0.5

    def apply(self, split: Split, seed: int) -> Split:
        """Exact for multiples of 90 degrees; the nearest pixel otherwise."""
        images = _images(split, "rotation")
        if self._exact(images.shape[1:]):
            turned = np.rot90(images, self._turns(), axes=(2, 3))
        else:
            turned = _turn(images, self.degrees, self.fill)
        return replace(split, inputs=np.ascontiguousarray(turned))

    def pixels(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """The turned places, where the turn is exact."""
        if not self._exact(shape):
            return None
        return np.rot90(_in_place(shape).reshape(shape[1:]), self._turns()).ravel()

    def _turns(self) -> int:
        return int(self.degrees % 360 // 90)

    def _exact(self, shape: tuple[int, ...]) -> bool:
        square = len(shape) == 3 and (shape[1] == shape[2] or self._turns() % 2 == 0)
        return square and self.degrees % 90 == 0


def _turn(images: np.ndarray, degrees: float, fill: int) -> np.ndarray:
    """Each pixel takes the value of the pixel nearest to where it comes from."""
    height, width = images.shape[2:]
    down, right = np.indices((height, width), dtype=np.float64)
    down, right = down - (height - 1) / 2, right - (width - 1) / 2
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    row = np.floor(cos * down + sin * right + (height - 1) / 2 + 0.5 + 1e-9).astype(np.int64)
    column = np.floor(cos * right - sin * down + (width - 1) / 2 + 0.5 + 1e-9).astype(np.int64)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    turned = images[:, :, row.clip(0, height - 1), column.clip(0, width - 1)]
    turned[:, :, ~inside] = fill
    return np.asarray(turned)


@shifts.register("labels")
@dataclass(frozen=True)
class Labels:
    """Keep only the samples of some classes."""

    changes_labels: ClassVar[bool] = True
    classes: tuple[int, ...] = ()  # the classes to keep

    def apply(self, split: Split, seed: int) -> Split:
        """The samples whose label is among the classes."""
        labels = _labels(split, "labels")
        absent = sorted(set(self.classes) - set(np.unique(labels).tolist()))
        if not self.classes or absent:
            got = f"no samples of classes {absent}" if absent else "no classes were given"
            raise InputError(f"shift 'labels': {got}; set classes = [0, 1, ...]")
        return split.take(np.flatnonzero(np.isin(labels, self.classes)))

    def pixels(self, shape: tuple[int, ...]) -> np.ndarray:
        """Every pixel where it was."""
        return _in_place(shape)


@shifts.register("swap")
@dataclass(frozen=True)
class Swap:
    """Exchange the labels of pairs of classes."""

    changes_labels: ClassVar[bool] = True
    pairs: tuple[tuple[int, int], ...] = ((0, 1),)  # classes that trade names

    def apply(self, split: Split, seed: int) -> Split:
        """The same inputs with the labels of each pair exchanged."""
        labels = _labels(split, "swap")
        classes = [label for pair in self.pairs for label in pair]
        if len(set(classes)) < len(classes):
            raise InputError(f"shift 'swap': a class may be in one pair only, got {self.pairs}")
        if not classes or min(classes) < 0:
            raise InputError(f"shift 'swap': give pairs = [[0, 1], ...], got {self.pairs}")
        names = np.arange(max(int(labels.max(initial=0)), *classes) + 1)
        first, second = np.array(self.pairs).T
        names[first], names[second] = second, first
        return replace(split, targets=names[labels])

    def pixels(self, shape: tuple[int, ...]) -> np.ndarray:
        """Every pixel where it was."""
        return _in_place(shape)


@shifts.register("colour")
@dataclass(frozen=True)
class Colour:
    """Change the colours of the images."""

    changes_labels: ClassVar[bool] = False
    mode: Literal["saturation", "sepia", "greyscale"] = "saturation"  # what to do to colours
    factor: float = 2.0  # saturation: 0 is grey, 1 changes nothing, above 1 is more vivid

    def apply(self, split: Split, seed: int) -> Split:
        """Each pixel's three values replaced by sums of them, rounded and clipped."""
        images = _images(split, "colour")
        if images.shape[1] != 3:
            raise InputError(
                f"shift 'colour' needs images with 3 channels, got {images.shape[1]}; "
                "use rotation, noise or blur"
            )
        matrix = self._matrix()

        def recolour(chunk: np.ndarray, first: int) -> np.ndarray:
            return np.asarray(np.einsum("ij,njhw->nihw", matrix, chunk))

        return replace(split, inputs=_by_chunks(images, recolour))

    def _matrix(self) -> np.ndarray:
        """What each new channel takes of each old one: [3, 3]."""
        grey = np.tile(LUMA, (3, 1))
        saturation = grey * (1 - self.factor) + np.eye(3) * self.factor
        return {"saturation": saturation, "sepia": np.array(SEPIA), "greyscale": grey}[self.mode]


@shifts.register("noise")
@dataclass(frozen=True)
class Noise:
    """Add normal noise to every pixel."""

    changes_labels: ClassVar[bool] = False
    sigma: float = 0.1  # deviation, of values in 0..1

    def apply(self, split: Split, seed: int) -> Split:
        """The images with noise that depends on the seed and on each sample's position."""
        images = _images(split, "noise")
        pixels = int(np.prod(images.shape[1:]))

        def disturb(chunk: np.ndarray, first: int) -> np.ndarray:
            rows = np.arange(first, first + len(chunk))
            return chunk + 255 * self.sigma * normals(pixels, seed, "shift/noise", rows).reshape(
                chunk.shape
            )

        return replace(split, inputs=_by_chunks(images, disturb))


@shifts.register("blur")
@dataclass(frozen=True)
class Blur:
    """Blur the images with a Gaussian."""

    changes_labels: ClassVar[bool] = False
    radius: float = 1.0  # deviation of the Gaussian, in pixels

    def apply(self, split: Split, seed: int) -> Split:
        """The images, smoothed down and across; edge pixels go on outside."""
        images = _images(split, "blur")
        if not 0 <= self.radius < np.inf:
            raise InputError(f"shift 'blur': radius must be a number from 0, got {self.radius:g}")
        kernel = _gaussian(self.radius)

        def smooth(chunk: np.ndarray, first: int) -> np.ndarray:
            return _convolve(_convolve(chunk, kernel, axis=2), kernel, axis=3)

        return replace(split, inputs=_by_chunks(images, smooth))


def _gaussian(radius: float) -> np.ndarray:
    reach = int(np.ceil(3 * radius))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(radius, 1e-9)) ** 2)
    return np.asarray(kernel / kernel.sum())


def _convolve(images: np.ndarray, kernel: np.ndarray, axis: int) -> np.ndarray:
    reach, size = len(kernel) // 2, images.shape[axis]
    positions = np.arange(size)
    total = np.zeros_like(images)
    for offset, weight in zip(range(-reach, reach + 1), kernel, strict=True):
        total += weight * images.take((positions + offset).clip(0, size - 1), axis=axis)
    return total


def _by_chunks(images: np.ndarray, change: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """Images changed as floats a chunk at a time (`change` gets each chunk's first index)."""
    result = np.empty_like(images)
    for first in range(0, len(images), CHUNK):
        chunk = images[first : first + CHUNK].astype(np.float64)
        result[first : first + CHUNK] = np.round(change(chunk, first)).clip(0, 255)
    return result


def _images(split: Split, name: str) -> np.ndarray:
    if split.inputs.ndim != 4:
        raise InputError(
            f"shift {name!r} needs images, got a table of {split.inputs.shape[-1]} columns; "
            "use labels, swap or none"
        )
    return split.inputs


def _labels(split: Split, name: str) -> np.ndarray:
    if split.targets.dtype != np.int64:
        raise InputError(f"shift {name!r} needs classes, got regression targets")
    return split.targets
