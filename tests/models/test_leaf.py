"""LEAF's models: their sizes, and an LSTM that can be stacked."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from coterie.errors import InputError
from coterie.models import Shape, models
from coterie.models.leaf import Lstm
from coterie.training.engine import TrainingSettings, make_engine
from coterie.training.objectives import Classification
from coterie.training.optimizers import SGD
from coterie.training.stacked import StackedEngine


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("spec", "shape", "count"),
    [
        ({"name": "leaf-femnist"}, Shape((1, 28, 28), 62), 6_603_710),
        ({"name": "leaf-femnist", "hidden": 512}, Shape((1, 28, 28), 10), 1_663_370),
        ({"name": "leaf-femnist", "port": True}, Shape((1, 28, 28), 62), 6_603_710),
        ({"name": "leaf-celeba"}, Shape((3, 84, 84), 2), 896 + 3 * 9248 + 4 * 64 + 2 * 1153),
        (
            {"name": "leaf-celeba", "port": True},
            Shape((3, 84, 84), 2),
            896 + 3 * 9248 + 4 * 64 + 2 * 1569,
        ),
        ({"name": "leaf-shakespeare"}, Shape((80,), 80), 640 + 272_384 + 526_336 + 20_560),
    ],
)
def test_models_have_the_published_sizes(spec, shape, count):
    module = models.build(spec).build(shape)
    assert size(module) == count
    assert module(torch.zeros(2, *shape.sample)).shape == (2, shape.outputs)


@pytest.mark.parametrize("side", [8, 64, 85])
@pytest.mark.parametrize("port", [False, True])
def test_the_celeba_model_takes_any_image_size(side, port):
    module = models.build({"name": "leaf-celeba", "port": port}).build(Shape((3, side, side), 2))
    assert module(torch.zeros(2, 3, side, side)).shape == (2, 2)


@pytest.mark.parametrize("side", [8, 31, 33])
@pytest.mark.parametrize("port", [False, True])
def test_the_femnist_model_takes_any_image_size(side, port):
    module = models.build({"name": "leaf-femnist", "port": port}).build(Shape((1, side, side), 5))
    assert module(torch.zeros(2, 1, side, side)).shape == (2, 5)


def test_norms_may_take_the_statistics_of_the_batch_when_judged():
    module = models.build({"name": "leaf-celeba", "running": False}).build(Shape((3, 8, 8), 2))
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(module.eval()(x), module.train()(x))
    assert not [name for name, _ in module.named_buffers()]


def test_the_text_model_refuses_images():
    with pytest.raises(InputError, match="needs rows of character codes"):
        models.build({"name": "leaf-shakespeare"}).build(Shape((1, 28, 28), 80))


def test_an_lstm_of_plain_operations_is_torchs():
    ours, torchs, x = Lstm(3, 4), nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    with torch.no_grad():
        torchs.weight_ih_l0.copy_(ours.input.weight)
        torchs.bias_ih_l0.copy_(ours.input.bias)
        torchs.weight_hh_l0.copy_(ours.recurrent.weight)
        torchs.bias_hh_l0.copy_(ours.recurrent.bias)
    torch.testing.assert_close(ours(x), torchs(x)[0])


def test_an_lstm_trains_on_the_stacked_path():
    def build() -> nn.Module:
        spec = {"name": "leaf-shakespeare", "embedding": 2, "hidden": 3}
        return models.build(spec).build(Shape((6,), 80))

    cpu = torch.device("cpu")
    settings = TrainingSettings(Classification(), SGD(), 80, 4, cpu, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model that cannot be stacked is warned of
        assert isinstance(make_engine(build, (6,), settings), StackedEngine)
