"""Cross-entropy: losses, predictions and the gradient of the logits."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _cross_entropy(
    logits_ptr, labels_ptr, ids_ptr, dlogits_ptr, batch,
    CLASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    real = k < CLASSES
    logits = tl.load(logits_ptr + image * CLASSES + k, mask=real, other=float("-inf"))
    label = tl.load(labels_ptr + tl.load(ids_ptr + image))
    weights = tl.exp(logits - tl.max(logits, axis=0))
    share = weights / tl.sum(weights, axis=0)
    gradient = (share - tl.where(k == label, 1.0, 0.0)) / batch
    tl.store(dlogits_ptr + image * CLASSES + k, gradient, mask=real)


def cross_entropy_gradient(logits: Tensor, labels: Tensor, ids: Tensor, dlogits: Tensor) -> None:
    """The gradient of each batch's mean loss; logits [rows, batch, classes], labels of the pool."""
    rows, batch, classes = logits.shape
    _cross_entropy[(rows * batch,)](
        logits,
        labels,
        ids,
        dlogits,
        batch,
        classes,
        triton.next_power_of_2(classes),
        num_warps=1,
    )
