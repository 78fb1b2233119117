from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.data import Dataset, Split, as_split, from_arrays, load, sources
from coterie.errors import InputError

IMAGES = np.zeros((6, 1, 4, 4), dtype=np.uint8)
LABELS = np.arange(6) % 3


def make(count: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What a user's function may return."""
    return IMAGES[:count], LABELS[:count], IMAGES, LABELS


def make_whole() -> Dataset:
    return from_arrays("mine", as_split(IMAGES, LABELS), as_split(IMAGES, LABELS))


def make_nothing() -> None:
    return None


def test_an_import_path_may_return_four_arrays() -> None:
    made = load(f"{__name__}:make")
    assert made.classes == 3
    assert made.train.targets.dtype == np.int64


def test_an_import_path_gets_its_options_by_name() -> None:
    assert len(load({"name": f"{__name__}:make", "count": 3}).train) == 3


def test_an_import_path_may_return_a_data_set() -> None:
    assert load(f"{__name__}:make_whole").name == "mine"


def test_an_option_that_the_function_lacks_is_named() -> None:
    with pytest.raises(InputError, match="unexpected keyword argument 'colour'"):
        load({"name": f"{__name__}:make", "colour": 3})


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("make_nothing", "returned a NoneType; return a coterie.data.Dataset"),
        ("absent", "unknown name in .*: .absent.; known: make, make_nothing"),
        ("__name__", "is a str; give a function"),
    ],
)
def test_an_import_path_that_gives_no_data_says_why(attribute: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(f"{__name__}:{attribute}")


def test_a_module_that_does_not_exist_is_an_input_error() -> None:
    with pytest.raises(InputError, match="No module named 'absent_package'"):
        load("absent_package.data:load")


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'digits'"):
        load("digit")


def test_every_option_has_a_doc() -> None:
    for entry in sources.entries.values():
        assert entry.doc
        assert all(option.doc for option in entry.options()), entry.name


def test_channels_may_come_last_or_be_left_out() -> None:
    assert as_split(np.zeros((2, 8, 9, 3), np.uint8), [0, 1]).inputs.shape == (2, 3, 8, 9)
    assert as_split(np.zeros((2, 8, 9), np.uint8), [0, 1]).inputs.shape == (2, 1, 8, 9)


def test_float_pixels_are_spread_over_a_byte() -> None:
    split = as_split(np.array([0.0, 0.5, 1.0, 1.0]).reshape(1, 1, 2, 2), [0])
    assert split.inputs.ravel().tolist() == [0, 128, 255, 255]


@pytest.mark.parametrize("top", [np.float32(2.5), np.int32(256), np.int32(-1)])
def test_pixels_out_of_range_are_refused(top: np.generic) -> None:
    with pytest.raises(InputError, match=r"pixels of .* images must be in"):
        as_split(np.full((1, 1, 2, 2), top), [0])


def test_float_targets_are_regression() -> None:
    split = as_split(np.zeros((3, 2)), np.array([0.5, 1.5, 2.5]))
    made = from_arrays("r", split, split)
    assert made.classes == 0
    assert split.targets.shape == (3, 1)
    assert (made.mean, made.std) == ((0.0,), (1.0,))


def split_of(inputs: np.ndarray, targets: np.ndarray, users: np.ndarray | None = None) -> Split:
    return Split(inputs, targets, users)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (split_of(IMAGES, LABELS + 1), r"train split: labels must be in 0..2, got 1..3"),
        (split_of(IMAGES, LABELS[:5]), "6 inputs but 5 targets"),
        (split_of(IMAGES.astype(float), LABELS), "got float64"),
        (split_of(IMAGES[:0], LABELS[:0]), "it is empty"),
        (split_of(IMAGES, LABELS.astype(np.float32)), "targets must be int64"),
        (split_of(IMAGES, LABELS, LABELS[:2]), "6 samples but users of shape"),
        (split_of(IMAGES[..., :3], LABELS), "but test samples"),
    ],
)
def test_a_data_set_with_wrong_arrays_is_refused(
    train: Split, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Dataset("mine", train, Split(IMAGES, LABELS), 3, (0.5,), (0.5,))
    monkeypatch.setitem(globals(), "make_whole", lambda: wrong)
    with pytest.raises(InputError, match=message):
        load(f"{__name__}:make_whole")


def test_rows_with_gaps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = as_split(np.array([[np.nan, 1.0]]), [0])
    monkeypatch.setitem(globals(), "make_whole", lambda: from_arrays("mine", rows, rows))
    with pytest.raises(InputError, match="NaN or infinity"):
        load(f"{__name__}:make_whole")


def test_a_path_picks_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    assert load(str(path)).name == "mine"


def test_taking_samples_takes_their_users() -> None:
    split = Split(IMAGES, LABELS, np.arange(6)).take(np.array([4, 1]))
    assert split.users is not None
    assert split.users.tolist() == [4, 1]
    assert len(split) == 2
