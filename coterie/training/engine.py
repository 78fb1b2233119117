"""Which engine trains a model: the one place where the choice is made."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from coterie.core.engine import Engine
from coterie.core.params import layout_of
from coterie.errors import InputError
from coterie.training.loop import LoopEngine
from coterie.training.objectives import Objective, Reconstruction
from coterie.training.optimizers import Optimizer
from coterie.training.stacked import StackedEngine
from coterie.training.task import Task, check_module, initial_module

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
LOOP_ABOVE = 300_000  # multiplications of convolutions a sample; see benchmarks/engine_choice.py
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
    precision: str = "float32"  # how a GPU rounds the factors of products: float32, tf32, bf16


def make_engine(
    build: Callable[[], nn.Module],
    sample_shape: Sequence[int],
    settings: TrainingSettings,
    head: Sequence[str] | None = None,
    path: str = "auto",
) -> Engine:
    """The engine for a module: row after row, or all rows stacked (`path` overrides the choice)."""
    _set_precision(settings)
    module = initial_module(build, 0)
    check_module(module)
    task = Task(module, layout_of(module, head), settings.objective, settings.classes)
    common = (task, settings.optimizer, build, settings.device, settings.dtype)
    if path == "auto":
        path = _choose(task, sample_shape, settings)
    if path == "loop":
        return LoopEngine(*common)
    row = _row_bytes(task, sample_shape, settings)
    chunk = max(1, CHUNK_BYTES[settings.device.type] // row)
    at_once = chunk * settings.batch
    sizes = (chunk, at_once, row, tuple(sample_shape))
    stacked = StackedEngine(*common, *sizes, _convolutions(settings))
    return _fused(stacked, sample_shape, settings) if path == "fused" else stacked


def _convolutions(settings: TrainingSettings) -> Callable[[], AbstractContextManager[Any]]:
    """How the generic path computes them: on a GPU with the kernels of the fused path."""
    if settings.device.type != "cuda" or settings.dtype != torch.float32:
        return nullcontext
    try:
        from coterie.training.convolve import OwnConvolutions
    except ImportError:
        return nullcontext
    return partial(OwnConvolutions, settings.precision)


def _fused(
    generic: StackedEngine, sample_shape: Sequence[int], settings: TrainingSettings
) -> Engine:
    """The kernels, where the module is a chain of layers they know; otherwise says why not."""
    from coterie.training.chain import Unknown, chain_of

    try:
        if settings.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise Unknown("they need a GPU")
        if settings.dtype != torch.float32:
            raise Unknown(f"they train in float32, not {settings.dtype}")
        images = isinstance(settings.objective, Reconstruction)
        chain = chain_of(generic.task.module, sample_shape, images)
        from coterie.training.fused import FusedEngine
        from coterie.training.goals import goal_of

        goal = goal_of(settings.objective)
    except (Unknown, ImportError) as reason:
        warnings.warn(f"the fast kernels are not used: {reason}", stacklevel=3)
        return generic
    return FusedEngine(generic, chain, goal, settings.precision, settings.batch, generic.chunk)


def _set_precision(settings: TrainingSettings) -> None:
    """Choose how a GPU multiplies, and algorithms that give the same bits every time."""
    if settings.device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        # cuDNN's Winograd transforms of 5x5 filters lose three digits (docs/speed.md)
        torch.backends.cudnn.enabled = settings.precision != "float32"
        torch.backends.cudnn.allow_tf32 = settings.precision != "float32"
        torch.backends.cuda.matmul.allow_tf32 = settings.precision != "float32"


def _choose(task: Task, sample_shape: Sequence[int], settings: TrainingSettings) -> str:
    """Measured on two CPU cores: large convolutions are faster row after row, the rest stacked."""
    if settings.device.type == "cpu":
        work = sum(_convolution_work(*seen) for seen in _outputs(task, sample_shape))
        if work > LOOP_ABOVE:
            return "loop"
    if not _stacks(task, sample_shape):
        return "loop"
    return "fused" if settings.device.type == "cuda" else "stacked"


def _convolution_work(layer: nn.Module, output: Tensor) -> int:
    """Multiplications of a convolution for one sample."""
    if not isinstance(layer, CONVOLUTIONS):
        return 0
    return output.numel() * layer.weight[0].numel()


def _stacks(task: Task, sample_shape: Sequence[int]) -> bool:
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


def _target_shape(task: Task, x: Tensor) -> tuple[int, ...]:
    if task.objective.classifies:
        return (len(x),)
    named = task.layout.unflatten(torch.zeros(task.layout.size))
    with torch.no_grad():
        return tuple(functional_call(task.template(), named, (x,)).shape)


def _target_type(task: Task) -> torch.dtype:
    return torch.int64 if task.objective.classifies else torch.float32


def _row_bytes(task: Task, sample_shape: Sequence[int], settings: TrainingSettings) -> int:
    """About how much memory one row takes while it trains."""
    outputs = _outputs(task, sample_shape)
    activations = sum(4 * output.numel() for _, output in outputs) * settings.batch
    return 4 * task.layout.size * 4 + 3 * activations


def _outputs(task: Task, sample_shape: Sequence[int]) -> list[tuple[nn.Module, Tensor]]:
    """Every layer with its output for one sample."""
    seen: list[tuple[nn.Module, Tensor]] = []

    def add(layer: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            seen.append((layer, output))

    module = task.template().eval()
    for layer in module.modules():
        layer.register_forward_hook(add)
    try:
        with torch.no_grad():
            module(torch.zeros(1, *sample_shape))
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"the model does not accept samples of shape {tuple(sample_shape)}: {error}"
        ) from None
    return seen
