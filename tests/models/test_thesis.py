"""The models of the FACADE thesis have the sizes that its code has: of its parts too."""

from __future__ import annotations

import pytest
import torch

from coterie.core.params import Layout
from coterie.models import Shape, models
from coterie.training.engine import TrainingSettings, make_engine
from coterie.training.objectives import Classification
from coterie.training.optimizers import SGD


def layout_of(name: str, shape: Shape) -> Layout:
    settings = TrainingSettings(
        *(Classification(), SGD(), shape.outputs, 2), torch.device("cpu"), torch.float32
    )
    return make_engine(lambda: models.build(name).build(shape), shape.sample, settings).layout


@pytest.mark.parametrize(
    ("name", "shape", "core", "head"),
    [
        ("lenet", Shape((3, 32, 32), 10), 79_584, 10_250),  # CIFAR-10: 89,834
        ("lenet", Shape((3, 64, 64), 10), 79_584, 40_970),  # Imagenette: 120,554
        ("resnet8", Shape((3, 64, 64), 41), 19_488, 293_161),  # Flickr-Mammals: 312,649
    ],
)
def test_core_and_head_are_as_large_as_the_thesis_has_them(name, shape, core, head):
    layout = layout_of(name, shape)
    trained = layout.trained()
    assert int(trained[layout.core].sum()) == core and int(trained[layout.head].sum()) == head


def test_running_statistics_are_of_the_part_that_has_their_layer():
    layout = layout_of("resnet8", Shape((3, 64, 64), 41))
    buffers = ~layout.trained()
    assert int(buffers[layout.core].sum()) == 2 * (32 + 2 * 32)  # stem, layer1
    assert int(buffers[layout.head].sum()) == 2 * (3 * 64 + 3 * 128)  # with the shortcuts
