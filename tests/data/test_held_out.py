"""A data set to tune on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.data import load, require
from coterie.errors import InputError


def seen(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}


def test_all_samples_are_train_samples_and_none_is_in_both_parts() -> None:
    whole, made = load("digits"), load({"name": "held-out", "of": "digits", "share": 0.25})
    assert len(made.train) + len(made.test) == len(whole.train)
    assert len(made.test) == -(-len(whole.train) // 4)
    train, test = seen(made.train.inputs), seen(made.test.inputs)
    assert train | test == seen(whole.train.inputs)
    assert (made.classes, made.mean, made.std) == (whole.classes, whole.mean, whole.std)


def test_the_samples_are_the_same_every_time() -> None:
    first, second = (load({"name": "held-out", "of": {"name": "digits"}}) for _ in range(2))
    assert np.array_equal(first.test.inputs, second.test.inputs)
    assert first.name == "held-out digits"


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"share": 1.0}, "share must be in 0..1"), ({"of": "digitz"}, "did you mean 'digits'")],
)
def test_what_cannot_be_held_out_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load({"name": "held-out", **changes})


def test_the_data_set_behind_it_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    require({"name": "held-out", "of": "digits"})
    with pytest.raises(InputError, match="coterie data get mnist"):
        require({"name": "held-out", "of": "mnist"})
