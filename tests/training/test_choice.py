"""Which engine a module gets, and which modules are refused."""

import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from coterie.errors import InputError
from coterie.models.convolutional import LeNet
from coterie.models.registry import Shape
from coterie.training import TrainingSettings, make_engine
from coterie.training.loop import LoopEngine
from coterie.training.objectives import Classification, Reconstruction, Regression
from coterie.training.optimizers import SGD
from coterie.training.stacked import StackedEngine

from ..world import CPU, World, mlp, normed


class Branching(nn.Module):
    """Looks at its values, which vmap cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        return out if float(out.detach().sum()) > 0 else 2 * out


@pytest.mark.parametrize("build", [mlp, normed])
def test_small_models_are_stacked(build: Callable[[], nn.Module]) -> None:
    assert isinstance(World(path="auto", build=build).engine(), StackedEngine)


@pytest.mark.parametrize("objective", [Regression(), Reconstruction()])
def test_models_without_classes_are_stacked(objective: Regression | Reconstruction) -> None:
    world = World(path="auto", objective=objective, classes=0, build=lambda: nn.Linear(10, 10))
    assert isinstance(world.engine(), StackedEngine)


def test_large_convolutions_train_row_after_row_on_a_cpu() -> None:
    lenet = World(
        path="auto", build=lambda: LeNet().build(Shape((3, 32, 32), 3)), shape=(3, 32, 32)
    )
    assert isinstance(lenet.engine(), LoopEngine)


def test_a_module_that_cannot_be_stacked_trains_row_after_row_with_one_warning() -> None:
    world = World(path="auto", build=Branching)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nodes = world.nodes()
        after = nodes.train(nodes.initial_params(), 0)
    assert [str(w.message).split(":")[0] for w in caught] == [
        "the model cannot be stacked, so its rows train one after the other"
    ]
    assert isinstance(nodes.population.engine, LoopEngine)
    assert not torch.equal(after, nodes.initial_params())


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.5), nn.Dropout1d(0.1), nn.Dropout2d(0.1), nn.AlphaDropout(0.1)]
)
def test_dropout_is_refused(layer: nn.Module) -> None:
    with pytest.raises(InputError, match=r"layer '1' is a dropout with p=0\.\d: .* use p=0"):
        World(build=lambda: nn.Sequential(nn.Linear(10, 3), layer)).engine()


@pytest.mark.parametrize("layer", [nn.FeatureAlphaDropout(0.5), nn.RReLU()])
def test_other_layers_that_draw_from_a_global_generator_are_refused(layer: nn.Module) -> None:
    with pytest.raises(InputError):
        World(build=lambda: nn.Sequential(nn.Linear(10, 3), layer), path="loop").engine()


def test_dropout_of_nothing_is_harmless() -> None:
    World(build=lambda: nn.Sequential(nn.Linear(10, 3), nn.Dropout(0.0))).engine()


def test_cumulative_batch_norm_is_refused() -> None:
    with pytest.raises(InputError, match="momentum=None"):
        World(
            build=lambda: nn.Sequential(nn.Linear(10, 3), nn.BatchNorm1d(3, momentum=None))
        ).engine()


def test_a_model_that_does_not_take_the_samples_is_refused() -> None:
    with pytest.raises(InputError, match=r"does not accept samples of shape \(4,\)"):
        World(shape=(4,)).engine()


def test_the_kernels_never_count_further_than_32_bits() -> None:
    pytest.importorskip("triton", reason="the kernels need the package triton")
    from coterie.training.chain import chain_of
    from coterie.training.fused import FusedEngine
    from coterie.training.goals import Classes

    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 20, 3), nn.Flatten(), nn.Linear(20 * 62 * 30, 2))

    settings = TrainingSettings(Classification(), SGD(), 2, 4, CPU, torch.float32)
    generic = make_engine(build, (1, 64, 32), settings, path="stacked")
    assert isinstance(generic, StackedEngine)
    engine = FusedEngine(generic, chain_of(build(), (1, 64, 32)), Classes(), "tf32", 4, 1)
    values = 32 * 62 * 30  # 20 channels are stored as 32
    assert engine.countable == (2**31 - 1) // values
    assert engine.memory(8) > 8 * values


def test_chunks_hold_at_least_one_row() -> None:
    settings = TrainingSettings(Classification(), SGD(), 3, 4, CPU, torch.float64)
    for batch, enough in ((4, 1000), (1 << 40, 1)):
        engine = make_engine(mlp, (10,), replace(settings, batch=batch), path="stacked")
        assert isinstance(engine, StackedEngine)
        assert engine.chunk >= enough
    assert engine.chunk == 1
