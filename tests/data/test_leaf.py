"""LEAF's data sets as miniatures in their official layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import coterie
from coterie.data import load
from coterie.data.celeba import read_faces
from coterie.data.holdings import Cluster, Plan, Replica, deal
from coterie.data.leaf import Division
from coterie.data.partitions import Natural
from coterie.data.shakespeare import LETTERS
from coterie.errors import InputError


def write_json(folder: Path, users: dict[str, dict[str, list[Any]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counts = [len(own["y"]) for own in users.values()]
    whole = {"users": list(users), "num_samples": counts, "user_data": users}
    (folder / "all_data_0.json").write_text(json.dumps(whole))


def character(value: int, label: int, count: int) -> dict[str, list[Any]]:
    return {"x": [[value / 255] * 784] * count, "y": [label] * count}


def write_femnist(folder: Path) -> None:
    write_json(folder / "train", {"f1": character(255, 61, 3), "f0": character(7, 0, 2)})
    write_json(folder / "test", {"f0": character(8, 1, 1), "f1": character(9, 2, 1)})


@pytest.mark.parametrize("below", ["", "data"])
def test_femnist_is_read_from_leafs_json_files(home: Path, below: str) -> None:
    write_femnist(home / "femnist" / below)
    made = load("femnist")
    assert made.train.inputs.shape == (5, 1, 28, 28) and made.classes == 62
    assert made.train.inputs[:, 0, 0, 0].tolist() == [255, 255, 255, 7, 7]
    assert made.train.users is not None and made.train.users.tolist() == [1, 1, 1, 0, 0]
    assert made.per_user_test and (made.mean, made.std) == ((0.0,), (1.0,))


def test_every_writer_is_tested_on_own_characters(home: Path) -> None:
    write_femnist(home / "femnist")
    made = load("femnist")
    dealt = deal(made, [Cluster("all")], [Replica("2", 1, (2,))], Plan(Natural()))
    for node in range(2):
        ink = [
            int(part.pool.show(part.all()[0][node, 0]).max()) for part in (dealt.train, dealt.test)
        ]
        assert ink in ([7, 8], [255, 9])


def test_where_leaf_divided_by_user_all_nodes_share_the_tests(home: Path) -> None:
    write_json(home / "femnist" / "train", {"f0": character(7, 0, 2)})
    write_json(home / "femnist" / "test", {"f1": character(9, 2, 1)})
    assert not load("femnist").per_user_test


def packed(path: Path, **changes: np.ndarray) -> None:
    path.parent.mkdir()
    arrays = {
        "x": np.arange(6, dtype=np.uint8).repeat(784).reshape(6, 28, 28),
        "y": np.array([0, 1, 61, 0, 1, 2], np.uint8),
        "writer": np.array([0, 0, 1, 1, 2, 2], np.int16),
        "split": np.array([0, 1, 0, 1, 0, 1], np.uint8),
    }
    arrays.update(changes)
    np.savez(path, **{name: array for name, array in arrays.items() if array.size})


def test_femnist_is_read_from_one_packed_file(home: Path) -> None:
    packed(home / "femnist" / "femnist.npz")
    made = load("femnist")
    assert made.train.inputs[:, 0, 0, 0].tolist() == [0, 2, 4]
    assert made.test.users is not None and made.test.users.tolist() == [0, 1, 2]


def test_femnist_may_be_divided_by_writer(home: Path) -> None:
    packed(home / "femnist" / "femnist.npz")
    made = load({"name": "femnist", "split": "user", "test_fraction": 0.34})
    assert (len(made.train), len(made.test)) == (4, 2) and not made.per_user_test
    assert made.train.users is not None and made.test.users is not None
    assert not set(made.train.users.tolist()) & set(made.test.users.tolist())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"writer": np.array([])}, "needs x, y, writer, split"),
        ({"x": np.zeros((6, 5, 5), np.uint8)}, r"x must be uint8 \[N, 28, 28\]"),
        ({"split": np.zeros(5, np.uint8)}, "differ in length"),
    ],
)
def test_a_packed_femnist_that_lacks_something_is_refused(
    home: Path, changes: dict[str, np.ndarray], message: str
) -> None:
    packed(home / "femnist" / "femnist.npz", **changes)
    with pytest.raises(InputError, match=message):
        load("femnist")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "all_data_0.json is not as LEAF writes it"),
        ('{"users": []}', "expected user_data"),
        ('{"user_data": {"f0": {"x": [[1]]}}}', "KeyError: 'y'"),
        ('{"user_data": {"f0": {"x": [[1]], "y": [0]}}}', "samples of user 'f0'"),
        ('{"user_data": {}}', "hold no samples"),
    ],
)
def test_a_json_file_that_is_not_leafs_is_refused(home: Path, text: str, message: str) -> None:
    write_femnist(home / "femnist")
    (home / "femnist" / "train" / "all_data_0.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load("femnist")


@pytest.mark.parametrize("name", ["femnist", "shakespeare"])
def test_an_empty_folder_says_what_makes_leafs_files(home: Path, name: str) -> None:
    (home / name).mkdir()
    with pytest.raises(InputError, match=r"neither train/ nor data/train/.*preprocess\.sh"):
        load(name)


@pytest.mark.parametrize("name", ["femnist", "celeba", "shakespeare"])
def test_missing_leaf_data_say_how_to_get_them(home: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        load(name)
    assert str(home) in str(caught.value) and "coterie data get" not in str(caught.value)


def test_a_division_by_sample_leaves_every_user_in_both_parts() -> None:
    users = np.array([5] * 10 + [2] * 3 + [9] * 1)
    tested = Division(False, 0.2, 0).tested(users)
    assert [int(tested[users == user].sum()) for user in (5, 2, 9)] == [2, 1, 0]
    assert np.array_equal(tested, Division(False, 0.2, 0).tested(users))
    assert not np.array_equal(tested, Division(False, 0.2, 1).tested(users))


def test_a_division_by_user_keeps_users_whole() -> None:
    users = np.repeat(np.arange(10), 4)
    tested = Division(True, 0.3, 0).tested(users).reshape(10, 4)
    assert (tested.all(1) | ~tested.any(1)).all() and tested.all(1).sum() == 3
    with pytest.raises(InputError, match="test_fraction must be between 0 and 1"):
        Division(True, 1.0, 0).tested(users)


NAMES = ("Attractive", "Heavy_Makeup", "High_Cheekbones", "Mouth_Slightly_Open", "Smiling")


def write_celeba(folder: Path) -> None:
    """Celebrity 3 has six images, 8 has five, 1 has two; even images smile."""
    (folder / "img_align_celeba").mkdir(parents=True)
    owners = [3] * 6 + [8] * 5 + [1] * 2
    lines = [f"{len(owners)}", f"{' '.join(NAMES)} Wavy_Hair "]
    for number in range(len(owners)):
        Image.new("RGB", (178, 218), (10 * number, 0, 0)).save(
            folder / "img_align_celeba" / f"{number:06}.png"
        )
        smiles = 1 if number % 2 == 0 else -1
        lines.append(f"{number:06}.png  1 -1 -1 -1  {smiles} {-smiles}")
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    names = (f"{number:06}.png {owner}\n" for number, owner in enumerate(owners))
    (folder / "identity_CelebA.txt").write_text("".join(names))


def test_celeba_has_a_celebrity_a_user(home: Path) -> None:
    write_celeba(home / "celeba")
    made = load({"name": "celeba", "size": 8})
    assert made.train.inputs.shape[1:] == (3, 8, 8) and made.classes == 2
    assert (len(made.train), len(made.test)) == (9, 2) and made.per_user_test
    assert made.train.users is not None and set(made.train.users.tolist()) == {3, 8}
    assert ((made.train.inputs[:, 0, 0, 0] // 10 % 2 == 0) == made.train.targets).all()


def test_celeba_may_lie_where_leaf_puts_it(home: Path) -> None:
    write_celeba(home / "celeba" / "data" / "raw")
    made = load({"name": "celeba", "size": 8})
    (home / "celeba" / "data" / "raw" / "identity_CelebA.txt").rename(home / "elsewhere")
    assert made.classes == 2
    with pytest.raises(InputError, match=r"no identity_CelebA.txt in .*put img_align_celeba/"):
        load({"name": "celeba", "size": 8})


def test_celeba_may_be_divided_by_celebrity_and_told_by_domain(home: Path) -> None:
    write_celeba(home / "celeba")
    made = load({"name": "celeba", "size": 8, "split": "user", "test_fraction": 0.5})
    assert sorted((len(made.train), len(made.test))) == [5, 6] and not made.per_user_test
    made = load({"name": "celeba", "size": 8, "users": "domain"})
    assert made.train.users is not None
    assert set(made.train.users.tolist()) == {0b10000, 0b10001}, "attractive, with or without waves"


def test_celeba_may_tell_the_domain_of_every_image(home: Path) -> None:
    write_celeba(home / "celeba")
    made = load({"name": "celeba", "size": 8, "domains": True})
    assert made.train.inputs.shape[1:] == (4, 8, 8) and len(made.mean) == len(made.std) == 4
    domain = made.train.inputs[:, 3]
    assert (domain == domain[:, :1, :1]).all()
    smiles = made.train.targets == 1  # who smiles has no waves
    assert (domain[:, 0, 0] == np.where(smiles, 0b10000, 0b10001)).all()


def test_an_attribute_that_celeba_has_not_gets_a_suggestion(home: Path) -> None:
    write_celeba(home / "celeba")
    with pytest.raises(InputError, match="did you mean 'Smiling'"):
        load({"name": "celeba", "attribute": "Smilling"})
    with pytest.raises(InputError, match="no celebrity has 50 images"):
        load({"name": "celeba", "min_samples": 50})


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("identity_CelebA.txt", "", "is empty"),
        ("identity_CelebA.txt", "000000.png who\n", "not as CelebA's"),
        ("identity_CelebA.txt", "999999.png 3\n", "no line for 999999.png"),
        ("list_attr_celeba.txt", "1\nSmiling Young\n000000.png 1\n", "no line for 000001.png"),
    ],
)
def test_lists_of_celeba_that_are_wrong_are_named(
    home: Path, file: str, text: str, message: str
) -> None:
    write_celeba(home / "celeba")
    (home / "celeba" / file).write_text(text)
    with pytest.raises(InputError, match=message):
        read_faces(home / "celeba")


def test_a_list_of_celeba_that_is_not_there_is_named(home: Path) -> None:
    (home / "celeba").mkdir()
    with pytest.raises(InputError, match=r"no identity_CelebA\.txt in .*put img_align_celeba/"):
        load("celeba")


def test_shakespeare_is_rows_of_character_codes(home: Path) -> None:
    lines = {"x": ["To be", "o be "], "y": [" ", "o"]}
    write_json(home / "shakespeare" / "train", {"HAMLET": lines})
    write_json(home / "shakespeare" / "test", {"HAMLET": lines})
    made = load("shakespeare")
    assert made.classes == len(LETTERS) == 80 and made.per_user_test
    assert "".join(LETTERS[int(code)] for code in made.train.inputs[0]) == "To be"
    assert made.train.targets.tolist() == [LETTERS.index(" "), LETTERS.index("o")]


def test_shakespeares_tests_may_be_on_other_speakers(home: Path) -> None:
    lines = {"x": ["To be", "o be "], "y": [" ", "o"]}
    for part in ("train", "test"):
        write_json(home / "shakespeare" / part, dict.fromkeys("ABCDE", lines))
    made = load({"name": "shakespeare", "split": "user", "test_fraction": 0.4})
    assert not made.per_user_test and len(made.test) == 2 * 4  # two speakers, all their pieces
    assert not set(made.train.users.tolist()) & set(made.test.users.tolist())


def speaker(text: str, count: int) -> dict[str, list[Any]]:
    """Pieces of a text that says the same over and over."""
    whole = text * count
    return {"x": [whole[i : i + 5] for i in range(count)], "y": list(whole[5 : 5 + count])}


def test_speakers_learn_to_go_on_as_nodes_of_a_run(home: Path, tmp_path: Path) -> None:
    plays = {f"PLAY_{name}": name for name in ("ab", "Be", "a,b")}
    for part, count in (("train", 12), ("test", 6)):
        users = {user: speaker(text, count) for user, text in plays.items()}
        write_json(home / "shakespeare" / "data" / part, users)
    table = {
        "experiment": {"name": "speakers", "rounds": 6, "seeds": [1]},
        "data": {
            "source": "shakespeare",
            "partition": "natural",
            "holdout": 0.0,
            "clusters": [{"name": "all", "nodes": 3}],
        },
        "model": {"name": "leaf-shakespeare", "hidden": 8},
        "train": {"epochs": 1, "batch": 4, "lr": 2.0},
        "algorithm": [{"name": "fedavg"}, {"name": "epidemic", "degree": 2}],
        "evaluate": {"every": 6},
        "runtime": {"models": False},
    }
    made = coterie.run(coterie.Config.model_validate(table), tmp_path / "run", device="cpu")
    reached = {result["label"]: result["accuracy_all"] for result in made["results"]}
    assert min(reached.values()) > 10, "eighty characters, of which five are ever said"


@pytest.mark.parametrize(
    ("x", "message"), [(["ab", "a"], "equally long"), (["a€", "ab"], "'€' is none of LEAF's 80")]
)
def test_text_that_leaf_would_not_write_is_refused(home: Path, x: list[str], message: str) -> None:
    for part in ("train", "test"):
        write_json(home / "shakespeare" / part, {"HAMLET": {"x": x, "y": ["a", "b"]}})
    with pytest.raises(InputError, match=message):
        load("shakespeare")
