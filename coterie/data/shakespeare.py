"""Shakespeare's plays by speaker: the next character of a line, from LEAF's JSON files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from coterie.data.home import Place
from coterie.data.leaf import LEAF, Division, joined, read_leaf, same_users
from coterie.data.source import Dataset, sources

# LEAF's 80 characters
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
CODES = {letter: code for code, letter in enumerate(LETTERS)}


@sources.register("shakespeare")
@dataclass(frozen=True)
class Shakespeare:
    """The next of 80 characters after a piece of a speaker's lines; with 'leaf-shakespeare'."""

    place: ClassVar[Place] = Place(
        "shakespeare",
        "shakespeare",
        advice=f"run LEAF's data/shakespeare/preprocess.sh ({LEAF}) and put its data/train and "
        "data/test into the folder shakespeare",
        fetched=False,
    )
    split: Literal["given", "user"] = "given"  # the files' own; user: tests are on other speakers
    test_fraction: float = 0.2  # of the speakers, where the split is by user
    seed: int = 0  # another seed, other speakers held out

    def load(self) -> Dataset:
        """Pieces of text as rows of codes, which a model takes as characters."""
        parts = read_leaf(self.place.require(), text)
        if self.split == "user":
            parts = Division(True, self.test_fraction, self.seed).of(joined(parts))
        natural = same_users(parts)
        return Dataset("shakespeare", *parts, len(LETTERS), (0.0,), (1.0,), natural)


def text(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """A speaker's pieces, all equally long, and the character after each."""
    lengths = {len(piece) for piece in x}
    if len(lengths) != 1:
        raise ValueError(f"pieces of text must be equally long, got {sorted(lengths)[:5]}")
    inputs = np.array([[_code(letter) for letter in piece] for piece in x], np.float32)
    return inputs, np.array([_code(letter) for letter in y], np.int64)


def _code(letter: str) -> int:
    if letter not in CODES:
        raise ValueError(f"{letter!r} is none of LEAF's {len(LETTERS)} characters")
    return CODES[letter]
