"""Small tensors on their way from the host to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device; a host that has a GPU does not wait until it has them."""
    if device.type != "cuda" or values.is_cuda or not values.numel():
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
