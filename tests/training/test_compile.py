"""Every kernel compiles for the GPU it was written for; that needs no GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from coterie.models import Shape, build_model
from coterie.training.objectives import Classification, Objective, Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam, Optimizer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compile_kernels.py"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    pytest.importorskip("triton", reason="the kernels need the package triton")
    spec = importlib.util.spec_from_file_location("compile_kernels", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setitem(sys.modules, "compile_kernels", module)  # its dataclass looks there
        spec.loader.exec_module(module)
        yield module


def mirror() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(8 * 3 * 2, 20), nn.ReLU(), nn.Linear(20, 35),
        nn.Unflatten(1, (1, 7, 5)),
    )  # fmt: skip


def digits() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 2), nn.Flatten(),
        nn.Linear(16, 3),
    )  # fmt: skip


def copier() -> nn.Module:
    return build_model({"name": "autoencoder", "unit": True}, Shape((1, 12, 12), 0))()


def table() -> nn.Module:
    return nn.Sequential(nn.Linear(11, 20, bias=False), nn.Sigmoid(), nn.Linear(20, 3))


@pytest.mark.parametrize(
    "build, shape, objective, wanted",
    [
        (table, (11,), Classification(), {"samples.gather", "dense.weight_step"}),
        (mirror, (1, 7, 5), Reconstruction(), {"loss.to_inputs", "convolution.forward_narrow"}),
        (digits, (1, 7, 6), Regression(), {"loss.to_targets", "convolution.input_gradient"}),
        (digits, (1, 7, 6), Classification(), {"loss.cross_entropy", "samples.gather"}),
    ],
)
def test_a_training_step_compiles_for_a_gpu(
    build: Callable[[], nn.Module],
    shape: tuple[int, ...],
    objective: Objective,
    wanted: set[str],
    script: ModuleType,
) -> None:
    turned = objective.classifies and len(shape) == 3
    network = script.make_network(build(), shape, 3, objective, SGD(), turned)
    names = {launch.name for launch in script.step(network)}
    assert wanted <= names


@pytest.mark.parametrize("optimizer", [SGD(), SGD(0.9, 0.1)])
def test_steps_inside_the_weight_gradient_compile_for_a_gpu(
    optimizer: SGD, script: ModuleType
) -> None:
    network = script.make_network(digits(), (1, 7, 6), 3, Classification(), optimizer)
    names = [launch.name for launch in script.step(network)]
    assert names.count("convolution.weight_gradient") == 2 and "dense.weight_step" in names
    assert "update.descend" not in names


@pytest.mark.parametrize("optimizer", [SGD(0.9), Adam()])
def test_an_autoencoder_compiles_for_a_gpu(optimizer: Optimizer, script: ModuleType) -> None:
    network = script.make_network(copier(), (1, 12, 12), 3, Reconstruction(), optimizer)
    names = [launch.name for launch in script.step(network)]
    # three convolutions, the first without input gradient; the transposed one runs backwards
    assert names.count("convolution.forward_narrow") == 4
    assert names.count("convolution.input_gradient") == 3
    assert names.count("convolution.weight_gradient") == 4
    assert names.count("activation.forward") == names.count("activation.backward") == 4
    assert names.count("update.adam") == (8 if isinstance(optimizer, Adam) else 0)


@pytest.mark.parametrize("channels, filters", [(64, 64), (32, 128), (128, 128)])
def test_tiles_of_wide_layers_fit_into_the_shared_memory_of_a_gpu(
    channels: int, filters: int, script: ModuleType
) -> None:
    module = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, filters, 3),
        nn.Flatten(), nn.Linear(filters * 36, 3),
    )  # fmt: skip
    network = script.make_network(module, (3, 8, 8), 300, Classification(), SGD())
    launches = script.step(network)
    assert {"convolution.forward", "convolution.input_gradient"} <= {one.name for one in launches}
    assert max(one.shared for one in launches) <= script.SHARED


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_and_draws_compile_for_a_gpu(dtype: torch.dtype, script: ModuleType) -> None:
    from coterie.core.draws_gpu import draw_on_gpu
    from coterie.core.slots_gpu import sum_slots_on_gpu

    rows, heard = torch.zeros(4, 50, dtype=dtype), torch.zeros(3, 2, dtype=torch.int64)
    with script.compiling() as launches:
        sum_slots_on_gpu(rows, heard, None)
        sum_slots_on_gpu(rows, heard, torch.ones(3, 2, dtype=dtype))
        draw_on_gpu(heard[:, 0], 1, 2, heard[:, 1], 9)
    names = ["slots_gpu.slot_sum", "slots_gpu.slot_sum", "draws_gpu.philox_words"]
    assert [launch.name for launch in launches] == names


def test_sums_of_rows_of_eighty_million_parameters_can_be_launched(script: ModuleType) -> None:
    from coterie.core.slots_gpu import sum_slots_on_gpu

    rows, heard = torch.empty(1, 80_000_000), torch.zeros(2, 1, dtype=torch.int64)
    with script.compiling() as launches:
        sum_slots_on_gpu(rows, heard, None)
    assert launches[0].programs == 2 * 78_125
