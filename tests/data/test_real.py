"""The real data sets, where this machine has them."""

from __future__ import annotations

import pytest

from coterie.data import Dataset, load
from coterie.data.celeba import CelebA, read_faces
from coterie.data.cifar10 import Cifar10
from coterie.data.femnist import Femnist
from coterie.data.home import Place
from coterie.data.imagenette import Imagenette
from coterie.data.images import read_image
from coterie.data.mnist import FashionMnist, Mnist
from coterie.data.source import statistics


def real(place: Place) -> Dataset:
    if place.find() is None:
        pytest.skip(f"{place.name} is not on this machine: {place.how()}")
    return load(place.name)


@pytest.mark.parametrize("place", [Mnist.place, FashionMnist.place], ids=lambda place: place.name)
def test_real_idx_data_have_the_published_statistics(place: Place) -> None:
    made = real(place)
    assert (len(made.train), len(made.test)) == (60000, 10000)
    mean, std = statistics(made.train.inputs)
    assert mean == pytest.approx(made.mean, abs=1e-4)
    assert std == pytest.approx(made.std, abs=1e-4)


def test_real_cifar10_is_whole() -> None:
    made = real(Cifar10.place)
    assert made.train.inputs.shape == (50000, 3, 32, 32)
    assert made.test.targets[:4].tolist() == [3, 8, 8, 0]
    mean, _ = statistics(made.train.inputs)
    assert mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-4)


@pytest.mark.slow
def test_real_imagenette_is_whole() -> None:
    made = real(Imagenette.place)
    assert (len(made.train), len(made.test), made.classes) == (9469, 3925, 10)


def test_real_femnist_has_its_writers() -> None:
    made = real(Femnist.place)
    assert made.classes == 62 and made.train.inputs.shape[1:] == (1, 28, 28)
    assert made.train.users is not None and made.test.users is not None
    assert set(made.test.users) <= set(made.train.users), "LEAF's split is by sample"
    assert float(made.train.inputs.mean()) > 200, "paper is white"
    if len(made.train) + len(made.test) == 60037:  # the subset of 377 writers
        assert len(set(made.train.users)) == 377 and len(made.test) == 6141


def test_real_celeba_has_its_celebrities() -> None:
    folder = CelebA.place.find()
    if folder is None:
        pytest.skip(f"celeba is not on this machine: {CelebA.place.how()}")
    faces = read_faces(folder).of_many(5)
    assert 0.3 < faces.has("Smiling").mean() < 0.7 and faces.domain().max() < 32
    if len(faces.files) == 6198:  # the subset of 278 celebrities
        assert len(set(faces.celebrity)) == 278 and faces.has("Smiling").sum() == 2856
    assert read_image(faces.files[0], 84, grey=False).shape == (3, 84, 84)
