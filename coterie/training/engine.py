"""Which engine trains a model: the one place where the choice is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from coterie.core.engine import Engine
from coterie.core.params import layout_of
from coterie.training.loop import LoopEngine
from coterie.training.objectives import Objective
from coterie.training.optimizers import Optimizer
from coterie.training.stacked import StackedEngine
from coterie.training.task import Task, check_module, initial_module

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
CHUNK_BYTES = {"cpu": 1 << 30, "cuda": 24 << 30}


@dataclass(frozen=True)
class TrainingSettings:
    """What the engine needs to know besides the module."""

    objective: Objective
    optimizer: Optimizer
    classes: int
    batch: int
    device: torch.device
    dtype: torch.dtype
    tf32: bool = False  # let a GPU round the factors of float32 products to 10 bits


def make_engine(
    build: Callable[[], nn.Module],
    sample_shape: Sequence[int],
    settings: TrainingSettings,
    head: Sequence[str] | None = None,
    path: str = "auto",
) -> Engine:
    """The engine for a module: row after row, or all rows stacked (`path` overrides the choice)."""
    module = initial_module(build, 0)
    check_module(module)
    task = Task(module, layout_of(module, head), settings.objective, settings.classes)
    common = (task, settings.optimizer, build, settings.device, settings.dtype)
    if path == "auto":
        path = _choose(task, sample_shape, settings)
    if path == "loop":
        return LoopEngine(*common)
    chunk = rows_per_chunk(task, sample_shape, settings)
    return StackedEngine(*common, chunk=chunk, samples_at_once=chunk * settings.batch)


def _choose(task: Task, sample_shape: Sequence[int], settings: TrainingSettings) -> str:
    """Measured on two CPU cores: convolutions are faster row after row, the rest stacked."""
    convolves = any(isinstance(layer, CONVOLUTIONS) for layer in task.module.modules())
    if settings.device.type == "cpu" and convolves:
        return "loop"
    return "stacked" if _stacks(task, sample_shape, settings) else "loop"


def _stacks(task: Task, sample_shape: Sequence[int], settings: TrainingSettings) -> bool:
    """Whether `vmap(grad)` can handle the module at all."""
    module = task.template().train()
    loss = task.batch_loss(module)
    rows = torch.zeros(2, task.layout.size)
    named = task.layout.unflatten(rows)
    trained = {c.name: named[c.name] for c in task.layout.columns if c.trained}
    rest = {name: named[name] for name in named if name not in trained}
    x = torch.zeros(2, 2, *sample_shape)
    try:
        y = torch.zeros(2, *_target_shape(task, x[0]), dtype=_target_type(task))
        vmap(grad(loss, has_aux=True))(trained, rest, x, y)
    except Exception as reason:
        warnings.warn(
            f"the model cannot be stacked, so its rows train one after the other: {reason}",
            stacklevel=2,
        )
        return False
    return True


def _target_shape(task: Task, x: torch.Tensor) -> tuple[int, ...]:
    if task.objective.classifies:
        return (len(x),)
    named = task.layout.unflatten(torch.zeros(task.layout.size))
    with torch.no_grad():
        return tuple(functional_call(task.template(), named, (x,)).shape)


def _target_type(task: Task) -> torch.dtype:
    return torch.int64 if task.objective.classifies else torch.float32


def rows_per_chunk(task: Task, sample_shape: Sequence[int], settings: TrainingSettings) -> int:
    """How many rows train together within the memory set aside for a chunk."""
    activations = _activation_bytes(task, sample_shape) * settings.batch
    row = 4 * task.layout.size * 4 + 3 * activations
    return max(1, CHUNK_BYTES[settings.device.type] // max(row, 1))


def _activation_bytes(task: Task, sample_shape: Sequence[int]) -> int:
    """Bytes of all layers' outputs for one sample."""
    total = 0

    def add(layer: nn.Module, inputs: object, output: object) -> None:
        nonlocal total
        total += output.numel() * 4 if isinstance(output, torch.Tensor) else 0

    module = task.template().eval()
    for layer in module.modules():
        layer.register_forward_hook(add)
    with torch.no_grad():
        module(torch.zeros(1, *sample_shape))
    return total
