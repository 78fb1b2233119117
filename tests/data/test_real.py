"""The real data sets, where this machine has them."""

from __future__ import annotations

import pytest

from coterie.data import Dataset, load
from coterie.data.cifar10 import Cifar10
from coterie.data.home import Place
from coterie.data.imagenette import Imagenette
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
