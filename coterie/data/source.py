"""Data sets: what one is, and how a name, a path or an import path becomes one."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coterie.core.registry import Registry, called, imported
from coterie.data.home import Place
from coterie.errors import InputError, unknown


@dataclass(frozen=True)
class Split:
    """Samples of one split: inputs, targets and, where known, who made each."""

    inputs: np.ndarray  # uint8 [N, C, H, W] for images, float32 [N, D] for tables
    targets: np.ndarray  # int64 [N] classes, or float32 [N, K] for regression
    users: np.ndarray | None = None  # int64 [N]

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: np.ndarray) -> Split:
        """The samples at these indices, in their order."""
        users = None if self.users is None else self.users[indices]
        return Split(self.inputs[indices], self.targets[indices], users)


@dataclass(frozen=True)
class Dataset:
    """A train and a test split, and what a model needs to know of them."""

    name: str
    train: Split
    test: Split
    classes: int  # 0 for regression
    mean: tuple[float, ...]  # per channel, of values in 0..1; (0.0,) for tables
    std: tuple[float, ...]
    per_user_test: bool = False  # natural data: each user is tested on own samples


class Source(Protocol):
    """A registered frozen dataclass whose fields are the options of a data set."""

    def load(self) -> Dataset:
        """Read or make the data set."""


sources: Registry[Source] = Registry("data set", "datasets")
SUFFIXES = {".npz": "npz", ".csv": "table", ".parquet": "table"}


def load(spec: str | Mapping[str, Any]) -> Dataset:
    """The data set of a registered name, an import path `package.module:function` or a path.

    A table has the name (or path) under `name` and options beside it.
    """
    return check(source_of(spec).load())


def source_of(spec: str | Mapping[str, Any]) -> Source:
    """What a name, an import path or a path stands for; nothing is read yet."""
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = str(options.get("name", ""))
    if "name" not in options or name in sources.entries:
        return sources.build(options)
    kind = _kind_of_path(name)
    if kind:
        return sources.build({**options, "name": kind, "path": name})
    if ":" in name:
        options.pop("name")
        return Own(name, options)
    raise unknown("data set", name, sources.entries, "coterie list datasets")


def require(spec: str | Mapping[str, Any]) -> None:
    """Say what is missing where a data set is not on this machine; nothing is read."""
    source = source_of(spec)
    place: Place | None = getattr(source, "place", None)
    if place:
        place.require()
    of: Any = getattr(source, "of", ())  # a data set that is made of others
    for part in [of] if isinstance(of, str | Mapping) else of:
        require(part)


@dataclass(frozen=True)
class Own:
    """A user's function by its import path, and its options."""

    where: str
    options: Mapping[str, Any]

    def load(self) -> Dataset:
        """What the function returns."""
        return _call(self.where, self.options)


def _kind_of_path(name: str) -> str | None:
    """The registered name that reads this path, where it is one."""
    path = Path(name).expanduser()
    folder = os.path.isdir(path)  # False also of a name that no file can have
    return SUFFIXES.get(path.suffix.lower()) or ("images" if folder else None)


def _call(where: str, options: Mapping[str, Any]) -> Dataset:
    """The data set that a user's function returns, whole or as four arrays."""
    function = imported(where, "data set")
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        raise InputError(f"data set {where!r} cannot take its options: {error}") from None
    made = called(functools.partial(function, **options), where, "data set")
    if isinstance(made, Dataset):
        return made
    if isinstance(made, tuple) and len(made) == 4:
        x_train, y_train, x_test, y_test = made
        return from_arrays(where, as_split(x_train, y_train), as_split(x_test, y_test))
    raise InputError(
        f"data set {where!r} returned a {type(made).__name__}; "
        "return a coterie.data.Dataset or a tuple (x_train, y_train, x_test, y_test)"
    )


def as_split(inputs: Any, targets: Any, users: Any = None) -> Split:
    """A split of a user's arrays: images with channels first, last or left out, or rows."""
    owners = None if users is None else np.asarray(users).astype(np.int64)
    return Split(_as_inputs(np.asarray(inputs)), _as_targets(np.asarray(targets)), owners)


def _as_inputs(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise InputError(f"inputs must be numbers, got {array.dtype}")
    if array.ndim == 2:
        return np.ascontiguousarray(array, dtype=np.float32)
    if array.ndim == 3:  # [N, H, W]
        array = array[:, None]
    if array.ndim != 4:
        raise InputError(
            f"inputs must be images [N, C, H, W] or rows [N, D], got shape {array.shape}"
        )
    if array.shape[1] not in (1, 3, 4) and array.shape[3] in (1, 3, 4):
        array = array.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(_as_bytes(array))


def _as_bytes(images: np.ndarray) -> np.ndarray:
    """Pixels as uint8; floats are taken as 0..1, integers as 0..255."""
    if images.dtype == np.uint8 or not images.size:
        return images.astype(np.uint8)
    top = 1 if images.dtype.kind == "f" else 255
    low, high = images.min(), images.max()
    if not (low >= 0 and high <= top):
        raise InputError(
            f"pixels of {images.dtype} images must be in 0..{top}, got {low:g}..{high:g}"
        )
    return np.asarray(np.round(images * (255 / top))).astype(np.uint8)


def _as_targets(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "iub" and array.ndim == 1:
        return array.astype(np.int64)
    if array.dtype.kind == "f" and array.ndim in (1, 2):
        return np.ascontiguousarray(array.reshape(len(array), -1), dtype=np.float32)
    raise InputError(
        "targets must be integers [N] (classes) or floats [N] or [N, K] (regression), "
        f"got {array.dtype} {list(array.shape)}"
    )


def from_arrays(name: str, train: Split, test: Split) -> Dataset:
    """A data set of two splits: classes are counted, pixels are measured."""
    labels = [split.targets for split in (train, test) if split.targets.size]
    regression = any(part.dtype != np.int64 for part in labels)
    classes = 0 if regression or not labels else int(max(part.max() for part in labels)) + 1
    mean, std = statistics(train.inputs)
    natural = train.users is not None and test.users is not None
    return Dataset(name, train, test, classes, mean, std, natural)


def statistics(inputs: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of images in 0..1; (0,) and (1,) for tables."""
    if inputs.ndim != 4 or not inputs.size:
        return (0.0,), (1.0,)
    # counting the 256 values of a byte is exact and needs no float copy of the images
    counts = [np.bincount(inputs[:, c].ravel(), minlength=256) for c in range(inputs.shape[1])]
    values = np.arange(256) / 255
    means = [float(np.average(values, weights=count)) for count in counts]
    stds = [
        float(np.sqrt(np.average((values - mean) ** 2, weights=count)))
        for count, mean in zip(counts, means, strict=True)
    ]
    return tuple(means), tuple(std or 1.0 for std in stds)


def check(dataset: Dataset) -> Dataset:
    """The data set itself, once its shapes, types and labels are seen to be right."""
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        problem = _problem(split, dataset.classes)
        if problem:
            raise InputError(f"data set {dataset.name!r}: {part} split: {problem}")
    shapes = dataset.train.inputs.shape[1:], dataset.test.inputs.shape[1:]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"data set {dataset.name!r}: train samples are {shapes[0]} but test samples {shapes[1]}"
        )
    return dataset


def _problem(split: Split, classes: int) -> str:
    if not len(split):
        return "it is empty"
    if len(split.inputs) != len(split.targets):
        return f"{len(split.inputs)} inputs but {len(split.targets)} targets"
    if split.users is not None and split.users.shape != (len(split),):
        return f"{len(split)} samples but users of shape {split.users.shape}"
    return _input_problem(split.inputs) or _target_problem(split.targets, classes)


def _input_problem(inputs: np.ndarray) -> str:
    if (str(inputs.dtype), inputs.ndim) not in (("uint8", 4), ("float32", 2)):
        return (
            "inputs must be images (uint8 [N, C, H, W]) or rows (float32 [N, D]), "
            f"got {inputs.dtype} {list(inputs.shape)}"
        )
    if inputs.ndim == 2 and not np.isfinite(inputs).all():
        return "inputs hold NaN or infinity; remove or fill those rows"
    return ""


def _target_problem(targets: np.ndarray, classes: int) -> str:
    wanted = ("int64", 1) if classes else ("float32", 2)
    if (str(targets.dtype), targets.ndim) != wanted:
        names = "int64 [N] for classes" if classes else "float32 [N, K] for regression"
        return f"targets must be {names}, got {targets.dtype} {list(targets.shape)}"
    if not classes and not np.isfinite(targets).all():
        return "targets hold NaN or infinity; remove or fill those rows"
    if classes and (targets.min() < 0 or targets.max() >= classes):
        return f"labels must be in 0..{classes - 1}, got {targets.min()}..{targets.max()}"
    return ""
