"""Gradient descent on packed weights: in a pass over partial gradients, or where they are made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from coterie.training.optimizers import Adam


@dataclass(frozen=True)
class Descent:
    """A step of SGD for a layer's weight and bias."""

    lr: Tensor  # [rows]
    decay: float
    momentum: float
    last: tuple[Tensor, ...] | None  # directions of weight and bias; None without momentum
    bias: bool = True  # False: only the weight takes a step here

    def places(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Where the directions are; `weight` stands for what is not there."""
        found = (*(self.last or ()), weight, weight)
        return found[0], found[1]


@triton.jit
def apply_descent(w_ptr, last_ptr, at, gradient, real, lr, decay, momentum, MOMENTUM: tl.constexpr):
    """w[at] -= lr * (momentum * last direction + gradient + decay * w), and keep the direction."""
    w = tl.load(w_ptr + at, mask=real, other=0.0)
    direction = gradient + decay * w
    if MOMENTUM:
        direction = momentum * tl.load(last_ptr + at, mask=real, other=0.0) + direction
        tl.store(last_ptr + at, direction, mask=real)
    tl.store(w_ptr + at, w - lr * direction, mask=real)


@triton.jit
def _summed(partial_ptr, at, real, by_part, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """A gradient from its parts, always added in the same order: the same bits every time."""
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(partial_ptr + part * by_part + at, mask=real, other=0.0)
    return total


@triton.jit
def _descend(
    w_ptr, partial_ptr, lr_ptr, size, by_part, by_row, decay,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    total = _summed(partial_ptr, row * by_row + i, real, by_part, PARTS, BLOCK)
    w = tl.load(w_ptr + row * size + i, mask=real, other=0.0)
    total += decay * w
    tl.store(w_ptr + row * size + i, w - tl.load(lr_ptr + row) * total, mask=real)


def descend(w: Tensor, partial: Tensor, lr: Tensor, decay: float) -> None:
    """w [rows, ...] -= lr [rows] * (sum of partial [parts, rows, ...] + decay * w)."""
    rows, size = len(w), w[0].numel()
    block = min(1024, triton.next_power_of_2(size))
    by_part, by_row = partial.stride(0), partial.stride(1)
    _descend[(rows, triton.cdiv(size, block))](
        w, partial, lr, size, by_part, by_row, decay, len(partial), block
    )


@triton.jit
def _adam(
    w_ptr, partial_ptr, mean_ptr, square_ptr, lr_ptr, reached_ptr, size, by_part, by_row,
    beta1, rest1, beta2, rest2, eps, decay, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = i < size
    at = row * size + i
    w = tl.load(w_ptr + at, mask=real, other=0.0)
    gradient = _summed(partial_ptr, row * by_row + i, real, by_part, PARTS, BLOCK) + decay * w
    mean = beta1 * tl.load(mean_ptr + at, mask=real, other=0.0) + rest1 * gradient
    square = beta2 * tl.load(square_ptr + at, mask=real, other=0.0) + rest2 * gradient * gradient
    tl.store(mean_ptr + at, mean, mask=real)
    tl.store(square_ptr + at, square, mask=real)
    root = tl.sqrt(square / tl.load(reached_ptr + 1)) + eps
    step = mean / tl.load(reached_ptr) / root
    tl.store(w_ptr + at, w - tl.load(lr_ptr + row) * step, mask=real)


class AdamSteps:
    """Adam on packed weights.

    What it divides its means by is what they would be, had all gradients been 1.
    """

    def __init__(self, rule: Adam, device: torch.device) -> None:
        self.rule = rule
        self.fresh = torch.tensor([1 - rule.beta1, 1 - rule.beta2], device=device)
        self.ones, self.reached = torch.ones_like(self.fresh), torch.zeros_like(self.fresh)

    def begin(self) -> None:
        """Count a step."""
        self.reached.lerp_(self.ones, self.fresh)

    def forget(self) -> None:
        """Count from the first step again."""
        self.reached.zero_()

    def change(self, w: Tensor, partial: Tensor, means: list[Tensor], lr: Tensor) -> None:
        """Change w [rows, ...] by the sum of partial [parts, rows, ...] and by its own means."""
        rule, rows, size = self.rule, len(w), w[0].numel()
        block = min(1024, triton.next_power_of_2(size))
        rates = (rule.beta1, 1 - rule.beta1, rule.beta2, 1 - rule.beta2, rule.eps)
        _adam[(rows, triton.cdiv(size, block))](
            w, partial, *means, lr, self.reached, size, partial.stride(0), partial.stride(1),
            *rates, rule.weight_decay, len(partial), block,
        )  # fmt: skip
