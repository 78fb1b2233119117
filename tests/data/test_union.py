"""Several data sets as one."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load, require
from coterie.errors import InputError


def test_classes_of_a_union_follow_one_another() -> None:
    one, two = load("digits"), load({"name": "union", "of": ["digits", "digits"]})
    assert two.classes == 20 and two.name == "digits+digits"
    assert np.array_equal(two.train.inputs[len(one.train) :], one.train.inputs)
    assert np.array_equal(two.train.targets[len(one.train) :], one.train.targets + 10)
    assert len(two.test) == 2 * len(one.test)


def test_pixels_of_a_union_may_stay_within_0_and_1() -> None:
    made = load({"name": "union", "of": ["digits"], "unit": True})
    assert (made.mean, made.std) == ((0.0,), (1.0,))
    assert load({"name": "union", "of": ["digits"]}).std[0] < 1


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ([], "no data sets were given"),
        (["digits", "synthetic"], "needs samples of one shape"),
        (["digitz"], "did you mean 'digits'"),
    ],
)
def test_what_cannot_be_one_data_set_is_refused(of: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load({"name": "union", "of": of})


def test_a_union_requires_all_that_it_is_made_of(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    require({"name": "union", "of": ["digits"]})
    with pytest.raises(InputError, match="coterie data get mnist"):
        require({"name": "union", "of": ["digits", "mnist"]})
