from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from coterie.data import Split, shifts
from coterie.errors import InputError


def images(count: int = 5, channels: int = 3, height: int = 8, width: int = 8) -> Split:
    size = count * channels * height * width
    pixels = (np.arange(size) * 37 % 256).astype(np.uint8)
    return Split(pixels.reshape(count, channels, height, width), np.arange(count) % 3)


def shifted(name: str, split: Split, seed: int = 0, **options: object) -> Split:
    return shifts.build({"name": name, **options}).apply(split, seed)


TABLE = Split(np.zeros((3, 4), np.float32), np.arange(3))
REGRESSION = Split(np.zeros((3, 4), np.float32), np.zeros((3, 1), np.float32))


def test_no_shift_leaves_the_samples() -> None:
    split = images()
    assert shifted("none", split) is split


@pytest.mark.parametrize("turns", [-1, 0, 1, 2, 3, 4, 5])
def test_a_rotation_by_ninety_degrees_is_exact(turns: int) -> None:
    split = images()
    turned = shifted("rotation", split, degrees=90 * turns)
    assert np.array_equal(turned.inputs, np.rot90(split.inputs, turns, axes=(2, 3)))
    assert turned.inputs.flags.c_contiguous


def test_a_rotation_is_counter_clockwise() -> None:
    pixels = np.array([[1, 2], [3, 4]], np.uint8).reshape(1, 1, 2, 2)
    turned = shifted("rotation", Split(pixels, np.zeros(1, np.int64)), degrees=90)
    assert turned.inputs[0, 0].tolist() == [[2, 4], [1, 3]]


@pytest.mark.parametrize("degrees", [30, 45, -17.5, 200])
def test_a_rotation_takes_the_nearest_pixel(degrees: float) -> None:
    split = images(count=1, channels=1, height=16, width=16)
    turned = shifted("rotation", split, degrees=degrees, fill=9).inputs[0, 0]
    picture = Image.fromarray(split.inputs[0, 0])
    theirs = picture.rotate(degrees, Image.Resampling.NEAREST, fillcolor=9)
    assert (turned == np.asarray(theirs)).mean() > 0.95


def test_a_slanted_rotation_fills_the_corners_with_grey() -> None:
    turned = shifted("rotation", images(), degrees=45).inputs
    assert set(turned[:, :, 0, 0].ravel()) == {127}


@pytest.mark.parametrize("degrees", [30, 90, 180])
def test_a_rotation_keeps_the_size_of_images_that_are_no_squares(degrees: int) -> None:
    split = images(height=6, width=9)
    assert shifted("rotation", split, degrees=degrees).inputs.shape == split.inputs.shape


def test_only_the_chosen_labels_are_kept() -> None:
    split = images(count=6)
    kept = shifted("labels", split, classes=[0, 2])
    assert kept.targets.tolist() == [0, 2, 0, 2]
    assert np.array_equal(kept.inputs, split.inputs[[0, 2, 3, 5]])


@pytest.mark.parametrize(
    ("classes", "message"),
    [([], "no classes were given"), ([0, 7], r"no samples of classes \[7\]")],
)
def test_labels_that_are_not_there_are_refused(classes: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shifted("labels", images(), classes=classes)


def test_swapped_labels_change_places() -> None:
    split = images(count=6)
    assert shifted("swap", split, pairs=[[0, 2]]).targets.tolist() == [2, 1, 0, 2, 1, 0]
    assert split.targets.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("pairs", [[[0, 1], [1, 2]], [[1, 1]], [], [[-1, 0]]])
def test_pairs_that_make_no_sense_are_refused(pairs: list[list[int]]) -> None:
    with pytest.raises(InputError, match="shift 'swap'"):
        shifted("swap", images(), pairs=pairs)


def test_greyscale_makes_the_channels_equal() -> None:
    grey = shifted("colour", images(), mode="greyscale").inputs
    assert np.array_equal(grey[:, 0], grey[:, 1])
    assert np.array_equal(grey[:, 0], grey[:, 2])


def test_saturation_by_zero_is_greyscale_and_by_one_is_nothing() -> None:
    split = images()
    grey = shifted("colour", split, mode="greyscale").inputs
    assert np.array_equal(shifted("colour", split, factor=0.0).inputs, grey)
    assert np.array_equal(shifted("colour", split, factor=1.0).inputs, split.inputs)


def test_sepia_makes_white_yellowish() -> None:
    white = Split(np.full((1, 3, 2, 2), 255, np.uint8), np.zeros(1, np.int64))
    red, green, blue = shifted("colour", white, mode="sepia").inputs[0, :, 0, 0].tolist()
    assert (red, green) == (255, 255)
    assert blue == 239


def test_a_colour_shift_needs_colours() -> None:
    with pytest.raises(InputError, match="needs images with 3 channels, got 1"):
        shifted("colour", images(channels=1))


def test_an_unknown_colour_mode_is_refused() -> None:
    with pytest.raises(InputError, match="mode"):
        shifted("colour", images(), mode="infrared")


def test_noise_has_its_deviation_and_follows_the_seed() -> None:
    grey = Split(np.full((50, 1, 16, 16), 128, np.uint8), np.zeros(50, np.int64))
    one, again, other = (shifted("noise", grey, seed, sigma=0.1).inputs for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.std() == pytest.approx(25.5, rel=0.05)
    assert one.mean() == pytest.approx(128, abs=1)


def test_noise_is_of_its_sample_not_of_its_company() -> None:
    split = images(count=4)
    part = shifted("noise", split.take(np.arange(2))).inputs
    assert np.array_equal(shifted("noise", split).inputs[:2], part)


def test_a_blur_is_close_to_the_usual_one() -> None:
    pixels = np.zeros((1, 1, 32, 32), np.uint8)
    pixels[:, :, 10:20, 12:22] = 255
    ours = shifted("blur", Split(pixels, np.zeros(1, np.int64)), radius=1.5).inputs[0, 0]
    theirs = Image.fromarray(pixels[0, 0]).filter(ImageFilter.GaussianBlur(1.5))
    assert np.abs(ours.astype(int) - np.asarray(theirs)).max() < 12


def test_a_blur_of_nothing_changes_nothing() -> None:
    split = images()
    assert np.array_equal(shifted("blur", split, radius=0.0).inputs, split.inputs)
    for radius in (-1.0, np.inf):
        with pytest.raises(InputError, match="radius"):
            shifted("blur", split, radius=radius)


@pytest.mark.parametrize("name", ["rotation", "colour", "noise", "blur"])
def test_a_table_has_no_looks_to_shift(name: str) -> None:
    with pytest.raises(InputError, match=f"shift '{name}' needs images, got a table of 4 columns"):
        shifted(name, TABLE)


@pytest.mark.parametrize("name", ["labels", "swap"])
def test_regression_has_no_labels_to_shift(name: str) -> None:
    with pytest.raises(InputError, match="needs classes"):
        shifted(name, REGRESSION)


def test_each_shift_says_whether_it_changes_labels() -> None:
    changing = {name for name in shifts.entries if shifts.build(name).changes_labels}
    assert changing == {"labels", "swap"}


OPTIONS: dict[str, dict[str, object]] = {"labels": {"classes": [0, 1]}}


@given(st.sampled_from(sorted(shifts.entries)), st.integers(0, 2**63 - 1))
def test_a_shift_changes_a_copy_and_keeps_the_form(name: str, seed: int) -> None:
    split = images()
    before = split.inputs.copy()
    after = shifted(name, split, seed, **OPTIONS.get(name, {}))
    assert np.array_equal(split.inputs, before)
    assert after.inputs.dtype == np.uint8
    assert after.targets.dtype == np.int64
    assert len(after.inputs) == len(after.targets)


def test_every_option_of_a_shift_has_a_doc() -> None:
    for entry in shifts.entries.values():
        assert all(option.doc for option in entry.options()), entry.name
