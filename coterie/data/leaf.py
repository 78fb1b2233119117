"""LEAF's JSON files, and splits of data whose users are known: by sample, or by user."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.keyed import uniforms
from coterie.data.source import Split
from coterie.errors import InputError

Convert = Callable[[list[Any], list[Any]], tuple[np.ndarray, np.ndarray]]
Parts = tuple[Split, Split]
LEAF = "https://github.com/TalwalkarLab/leaf"


@dataclass(frozen=True)
class Division:
    """How samples of many users are divided in train and test."""

    by_user: bool  # whole users are for tests; else some samples of every user
    fraction: float  # of the users, or of each user's samples, for tests
    seed: int  # another seed, others held out

    def of(self, whole: Split) -> Parts:
        """The train and the test split."""
        assert whole.users is not None
        return cut(whole, self.tested(whole.users))

    def tested(self, users: np.ndarray) -> np.ndarray:
        """Which samples are for tests; divided by sample, users of two or more are in both."""
        if not 0 < self.fraction < 1:
            raise InputError(f"test_fraction must be between 0 and 1, got {self.fraction:g}")
        return self._users(users) if self.by_user else self._samples(users)

    def _users(self, users: np.ndarray) -> np.ndarray:
        ids = np.unique(users)
        count = max(round(self.fraction * len(ids)), 1)
        ranked = np.argsort(self._draws(ids, "users"), kind="stable")
        return np.isin(users, ids[ranked[:count]])

    def _samples(self, users: np.ndarray) -> np.ndarray:
        _, which, counts = np.unique(users, return_inverse=True, return_counts=True)
        draws = self._draws(np.arange(len(users)), "samples")
        ranked = np.lexsort((draws, which))  # user by user, each one's in random order
        place = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
        wanted = np.minimum(np.maximum(np.round(self.fraction * counts), 1), counts - 1)
        tested = np.zeros(len(users), bool)
        tested[ranked] = place < np.repeat(wanted, counts)
        return tested

    def _draws(self, numbers: np.ndarray, what: str) -> np.ndarray:
        drawn: np.ndarray = uniforms(1, self.seed, f"data/held-out {what}", numbers)[:, 0]
        return drawn


def cut(whole: Split, tested: np.ndarray) -> Parts:
    """The samples that are not for tests, and those that are."""
    return whole.take(np.flatnonzero(~tested)), whole.take(np.flatnonzero(tested))


def joined(parts: Parts) -> Split:
    """Both splits as one."""
    first, second = parts
    assert first.users is not None and second.users is not None
    return Split(
        np.concatenate([first.inputs, second.inputs]),
        np.concatenate([first.targets, second.targets]),
        np.concatenate([first.users, second.users]),
    )


def same_users(parts: Parts) -> bool:
    """Whether those who are trained on have tests of their own: not so in a split by user."""
    first, second = parts
    assert first.users is not None and second.users is not None
    return bool(np.isin(first.users, second.users).any())


def read_leaf(folder: Path, convert: Convert) -> Parts:
    """LEAF's train/*.json and test/*.json below a folder or its data/; users are numbered."""
    roots = [root for root in (folder, folder / "data") if (root / "train").is_dir()]
    if not roots:
        raise InputError(
            f"{folder} has neither train/ nor data/train/ with LEAF's JSON files; run LEAF's "
            f"preprocess.sh ({LEAF}) and put what it makes there"
        )
    raw = [list(_users_of(roots[0] / part)) for part in ("train", "test")]
    names = {name for part in raw for name, _, _ in part}
    numbers = {name: number for number, name in enumerate(sorted(names))}
    train, test = (_split(part, numbers, convert) for part in raw)
    return train, test


def _users_of(folder: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder} has no JSON files; run LEAF's preprocess.sh again")
    for path in files:
        try:
            users = json.loads(path.read_text(encoding="utf-8"))["user_data"]
            yield from ((str(n), list(own["x"]), list(own["y"])) for n, own in users.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is not as LEAF writes it ({type(error).__name__}: {error}); expected "
                "user_data with x and y of every user; run LEAF's preprocess.sh again"
            ) from None


def _split(
    raw: list[tuple[str, list[Any], list[Any]]], numbers: dict[str, int], convert: Convert
) -> Split:
    pieces = [_piece(name, x, y, convert) for name, x, y in raw if y]
    if not pieces:
        raise InputError("LEAF's JSON files hold no samples; run its preprocess.sh again")
    owners = np.repeat([numbers[name] for name, _, y in raw if y], [len(p) for p in pieces])
    whole = Split(
        np.concatenate([piece.inputs for piece in pieces]),
        np.concatenate([piece.targets for piece in pieces]),
    )
    return replace(whole, users=owners.astype(np.int64))


def _piece(name: str, x: list[Any], y: list[Any], convert: Convert) -> Split:
    try:
        inputs, targets = convert(x, y)
    except (ValueError, TypeError) as error:
        raise InputError(f"samples of user {name!r} are not as LEAF writes them: {error}") from None
    if len(inputs) != len(targets):
        raise InputError(f"user {name!r} has {len(inputs)} inputs but {len(targets)} targets")
    return Split(inputs, targets)
