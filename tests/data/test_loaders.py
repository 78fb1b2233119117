from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from coterie.data import load
from coterie.data.mnist import FashionMnist
from coterie.errors import InputError

from .conftest import write_cifar10, write_idx, write_images


def test_digits_are_always_there() -> None:
    digits = load("digits")
    assert (len(digits.train), len(digits.test), digits.classes) == (1437, 360, 10)
    assert digits.train.inputs.shape[1:] == (1, 8, 8)
    assert (digits.train.inputs.min(), digits.train.inputs.max()) == (0, 255)
    assert np.unique(digits.test.targets).tolist() == list(range(10))


def test_synthetic_data_depend_on_their_seed_only() -> None:
    one, again, other = (load({"name": "synthetic", "seed": s}) for s in (1, 1, 2))
    assert np.array_equal(one.train.inputs, again.train.inputs)
    assert not np.array_equal(one.train.inputs, other.train.inputs)


def test_synthetic_clouds_lie_about_their_centres() -> None:
    made = load({"name": "synthetic", "classes": 3, "features": 5, "noise": 0.0, "samples": 50})
    assert made.train.inputs.dtype == np.float32
    assert len(np.unique(made.train.inputs, axis=0)) == 3
    assert (len(made.train), len(made.test)) == (40, 10)


def test_synthetic_data_need_a_sample_a_class() -> None:
    with pytest.raises(InputError, match="one sample a class; got 4, 16 and 3"):
        load({"name": "synthetic", "samples": 3})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_are_read_raw_or_packed(home: Path, name: str, packed: bool) -> None:
    write_idx(home / name, packed=packed)
    made = load(name)
    assert made.train.inputs.shape == (20, 1, 28, 28)
    assert made.train.inputs[0, 0, 0, :3].tolist() == [0, 1, 2]
    assert made.test.targets.tolist() == [*range(10), *range(10)]
    assert made.train.inputs.flags.writeable


def test_a_data_set_in_the_user_cache_is_found(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "cache" / "coterie" / "data" / "mnist")
    assert len(load("mnist").train) == 20
    monkeypatch.delenv("COTERIE_DATA")
    assert len(load("mnist").train) == 20


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize("keep", [0, 3, 12, 1000])
def test_a_truncated_idx_file_is_named(home: Path, keep: int) -> None:
    write_idx(home / "mnist")
    cut(home / "mnist" / "t10k-images-idx3-ubyte", keep)
    with pytest.raises(InputError, match="t10k-images-idx3-ubyte is"):
        load("mnist")


@pytest.mark.parametrize("keep", [0, 5, 100])
def test_a_truncated_packed_file_is_named(home: Path, keep: int) -> None:
    write_idx(home / "mnist", packed=True)
    cut(home / "mnist" / "train-images-idx3-ubyte.gz", keep)
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz"):
        load("mnist")


def test_a_corrupt_packed_file_is_named(home: Path) -> None:
    write_idx(home / "mnist", packed=True)
    path = home / "mnist" / "train-labels-idx1-ubyte.gz"
    data = bytearray(gzip.compress(bytes(1000)))
    data[12] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte\.gz"):
        load("mnist")


def test_a_file_that_is_not_there_is_named(home: Path) -> None:
    write_idx(home / "mnist")
    (home / "mnist" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match="has neither train-labels-idx1-ubyte nor"):
        load("mnist")


def test_cifar10_has_its_batches_in_order(home: Path) -> None:
    write_cifar10(home / "cifar-10-batches-bin")
    made = load("cifar10")
    assert made.train.inputs.shape == (50, 3, 32, 32)
    assert made.train.inputs[::10, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert set(made.test.inputs.ravel()) == {9}
    assert made.test.targets.tolist() == list(range(10))


def test_a_truncated_cifar10_batch_is_named(home: Path) -> None:
    write_cifar10(home / "cifar-10-batches-bin")
    cut(home / "cifar-10-batches-bin" / "data_batch_3.bin", 5000)
    with pytest.raises(InputError, match=r"data_batch_3\.bin is cut short"):
        load("cifar10")


def test_a_missing_cifar10_batch_is_named(home: Path) -> None:
    write_cifar10(home / "cifar-10-batches-bin")
    (home / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    with pytest.raises(InputError, match=r"cannot read .*test_batch\.bin: No such file"):
        load("cifar10")


def test_a_wrong_label_is_refused(home: Path) -> None:
    write_cifar10(home / "cifar-10-batches-bin")
    path = home / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(b"\x0b" + path.read_bytes()[1:])
    with pytest.raises(InputError, match=r"labels must be in 0..9, got 1..11"):
        load("cifar10")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "imagenette"])
def test_missing_data_say_where_was_looked_and_how_to_get_them(home: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        load(name)
    message = str(caught.value)
    assert str(home) in message
    assert str(home.parent / "cache" / "coterie" / "data") in message
    assert f"coterie data get {name}" in message
    assert "COTERIE_DATA is not set" not in message


def test_missing_data_say_when_no_folder_was_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(InputError, match="COTERIE_DATA is not set"):
        load("mnist")


def test_missing_fashion_mnist_names_the_debian_package() -> None:
    assert "apt-get install dataset-fashion-mnist" in FashionMnist.place.how()


def test_imagenette_is_resized_and_cropped(home: Path) -> None:
    for part in ("train", "val"):
        write_images(home / "imagenette2-160" / part)
    made = load({"name": "imagenette", "size": 4})
    assert made.train.inputs.shape == (6, 3, 4, 4)
    assert made.classes == 2
    assert made.train.inputs[0, :, 0, 0].tolist() == [255, 0, 0]


def test_imagenette_without_its_val_folder_is_refused(home: Path) -> None:
    write_images(home / "imagenette2" / "train")
    with pytest.raises(InputError, match="has no folder val"):
        load("imagenette")


def test_one_tree_of_images_is_cut_in_two(tmp_path: Path) -> None:
    write_images(tmp_path / "pets", count=5)
    made = load({"name": str(tmp_path / "pets"), "size": 8})
    assert (made.name, len(made.train), len(made.test), made.classes) == ("pets", 8, 2, 2)
    assert np.array_equal(made.test.inputs, load(str(tmp_path / "pets")).test.inputs[..., :8, :8])


def test_train_and_val_folders_are_kept_apart(tmp_path: Path) -> None:
    write_images(tmp_path / "train", count=4)
    write_images(tmp_path / "val", count=1)
    made = load({"name": "images", "path": str(tmp_path), "size": 8, "grey": True})
    assert (len(made.train), len(made.test)) == (8, 2)
    assert made.train.inputs.shape[1:] == (1, 8, 8)


def test_the_middle_of_a_wide_image_is_kept(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        wide = Image.new("L", (10, 4), 0)
        wide.paste(200, (3, 0, 7, 4))
        wide.save(tmp_path / name / "0.png")
    made = load({"name": str(tmp_path), "size": 4, "test_fraction": 0.5})
    assert set(made.train.inputs.ravel()) == {200}


def test_a_corrupt_image_is_named(tmp_path: Path) -> None:
    write_images(tmp_path)
    cut(tmp_path / "dog" / "1.png", 40)
    with pytest.raises(InputError, match=r"cannot read image .*dog/1\.png"):
        load(str(tmp_path))


def test_a_test_class_that_is_not_trained_on_is_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "test")
    (tmp_path / "test" / "emu").mkdir()
    with pytest.raises(InputError, match="the train folder has not: emu"):
        load(str(tmp_path))


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no sub-folders"):
        load(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="has no images"):
        load(str(tmp_path))


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="no folder 'nowhere'"):
        load({"name": "images", "path": "nowhere"})


ARRAYS = {
    "x_train": np.zeros((4, 6, 6), np.uint8),
    "y_train": np.array([0, 1, 2, 0]),
    "x_test": np.ones((2, 6, 6), np.uint8),
    "y_test": np.array([0, 1]),
}


def test_an_npz_file_may_say_who_made_each_sample(tmp_path: Path) -> None:
    users = {"user_train": np.array([7, 7, 8, 9]), "user_test": np.array([7, 8])}
    np.savez(tmp_path / "mine.npz", **ARRAYS, **users)
    made = load(str(tmp_path / "mine.npz"))
    assert made.per_user_test
    assert made.train.users is not None
    assert made.train.users.tolist() == [7, 7, 8, 9]


def test_an_npz_file_without_an_array_says_which(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x_train=ARRAYS["x_train"])
    with pytest.raises(InputError, match="has no array y_train, x_test, y_test"):
        load(str(tmp_path / "mine.npz"))


def test_an_npz_file_of_words_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **{**ARRAYS, "x_train": np.array(["a", "b"])})
    with pytest.raises(InputError, match=r"mine\.npz: inputs must be numbers"):
        load(str(tmp_path / "mine.npz"))


def test_objects_in_an_npz_file_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **{**ARRAYS, "x_train": np.array([{}], dtype=object)})
    with pytest.raises(InputError, match=r"cannot read .*mine\.npz"):
        load(str(tmp_path / "mine.npz"))


@pytest.mark.parametrize("keep", [0, 10, 300])
def test_a_truncated_npz_file_is_named(tmp_path: Path, keep: int) -> None:
    np.savez_compressed(tmp_path / "mine.npz", **ARRAYS)
    cut(tmp_path / "mine.npz", keep)
    with pytest.raises(InputError, match=r"cannot read .*mine\.npz"):
        load(str(tmp_path / "mine.npz"))


def write_table(path: Path, **columns: object) -> str:
    frame = pd.DataFrame({"a": np.arange(10.0), "b": 3, **columns})
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_is_standardised_and_its_classes_numbered(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"t.{suffix}", kind=["x", "y"] * 5)
    made = load(path)
    assert (made.classes, made.train.inputs.shape, len(made.test)) == (2, (8, 2), 2)
    assert made.train.inputs[:, 0].mean() == pytest.approx(0, abs=1e-6)
    assert made.train.inputs[:, 0].std() == pytest.approx(1, abs=1e-6)
    assert set(made.train.inputs[:, 1]) == {0.0}
    parity = np.concatenate([made.train.targets, made.test.targets])
    assert sorted(parity) == [0] * 5 + [1] * 5


def test_a_table_may_have_users_and_a_target_in_the_middle(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", who=["u", "v"] * 5)
    made = load({"name": path, "target": "b", "user": "who"})
    assert made.per_user_test
    assert made.train.users is not None
    assert set(made.train.users) == {0, 1}
    assert made.train.inputs.shape[1] == 1


def test_a_table_of_regression_keeps_its_target(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", y=np.arange(10) / 4)
    made = load({"name": path, "task": "regression"})
    assert made.classes == 0
    both = np.concatenate([made.train.targets, made.test.targets])
    assert sorted(both.ravel()) == (np.arange(10) / 4).tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["n"] * 10, "y": [0] * 10}, "not numbers: name"),
        ({"c": [np.nan] + [1.0] * 9, "y": [0] * 10}, "missing or infinite values: c"),
        ({"c": [np.inf] + [1.0] * 9, "y": [0] * 10}, "missing or infinite values: c"),
        ({"y": [None] + ["x"] * 9}, "column 'y' of .* has missing values"),
        ({"y": np.arange(10) / 4}, 'set task = "regression"'),
    ],
)
def test_a_table_that_cannot_be_used_says_which_column(
    tmp_path: Path, columns: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(write_table(tmp_path / "t.csv", **columns))


def test_a_misspelt_column_gets_a_suggestion(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", kind=["x", "y"] * 5)
    with pytest.raises(InputError, match="did you mean 'kind'"):
        load({"name": path, "target": "kinds"})


@pytest.mark.parametrize(
    ("name", "data"), [("t.csv", b""), ("t.csv", b"\xff\xfe\x00,\x81"), ("t.parquet", b"PAR1")]
)
def test_a_corrupt_table_is_named(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=name):
        load(str(tmp_path / name))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0])
def test_a_test_fraction_must_leave_both_parts(tmp_path: Path, fraction: float) -> None:
    path = write_table(tmp_path / "t.csv")
    with pytest.raises(InputError, match="test_fraction must be between 0 and 1"):
        load({"name": path, "test_fraction": fraction})


def test_a_table_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"no file 'nowhere\.csv'"):
        load("nowhere.csv")


def test_flickr_mammals_holds_out_whole_sub_folders(home: Path) -> None:
    for name in ("fox", "bear", "seal"):
        for number in range(5):
            folder = home / "geo_animal" / name / f"{number:02}"
            folder.mkdir(parents=True)
            for image in range(2):
                Image.new("RGB", (12, 9), (40 * number,) * 3).save(folder / f"{image}.jpg")
    made = load({"name": "flickr-mammals", "size": 8})
    assert (len(made.train), len(made.test), made.classes) == (24, 6, 3)
    assert made.train.inputs.shape[1:] == (3, 8, 8) and made.mean == (0.5, 0.5, 0.5)
    for label in range(3):
        used, held = (
            set(part.inputs[part.targets == label][:, 0, 0, 0].tolist())
            for part in (made.train, made.test)
        )
        assert len(used) == 4 and len(held) == 1 and not used & held


def test_flickr_mammals_in_another_layout_is_refused(home: Path) -> None:
    write_images(home / "geo_animal")
    with pytest.raises(InputError, match="the layout is geo_animal/CLASS/SUB-FOLDER/IMAGE"):
        load("flickr-mammals")


def test_missing_flickr_mammals_say_where_they_are_published(home: Path) -> None:
    with pytest.raises(InputError) as caught:
        load("flickr-mammals")
    assert "Zenodo record 3676081" in str(caught.value)
    assert "coterie data get" not in str(caught.value)
