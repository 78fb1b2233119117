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

from coterie.training.objectives import Classification, Objective, Reconstruction, Regression
from coterie.training.optimizers import SGD

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


@pytest.mark.parametrize(
    "build, shape, objective, wanted",
    [
        (mirror, (1, 7, 5), Reconstruction(), {"loss.to_inputs", "convolution.forward_narrow"}),
        (digits, (1, 7, 6), Regression(), {"loss.to_targets", "convolution.input_gradient"}),
        (digits, (1, 7, 6), Classification(), {"loss.cross_entropy", "samples.gather"}),
    ],
)
def test_a_training_step_compiles_for_a_gpu(
    build: Callable[[], nn.Module],
    shape: tuple[int, int, int],
    objective: Objective,
    wanted: set[str],
    script: ModuleType,
) -> None:
    turned = objective.classifies
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
