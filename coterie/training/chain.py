"""A module as a chain of known layers: what the kernels can run, or why they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Convolution:
    """A convolution and what follows it within one pass: norm, ReLU, pool."""

    name: str
    layer: nn.Conv2d
    norm_name: str = ""
    norm: nn.GroupNorm | None = None
    relu: bool = False
    pool: str = ""  # "max" or "mean" of 2x2 pixels


@dataclass(frozen=True)
class Dense:
    """A linear layer and whether a ReLU follows."""

    name: str
    layer: nn.Linear
    relu: bool = False


Link = Convolution | Dense


class Unknown(Exception):
    """The module is not a chain of known layers; the message says which layer."""


def chain_of(module: nn.Module, sample_shape: Sequence[int], images: bool = False) -> list[Link]:
    """The links of a module, first to last; with `images` it must give images like its samples."""
    links: list[Link] = []
    for name, layer in _shaped(module, sample_shape) if images else _leaves(module):
        links = _extend(links, name, layer)
    if not links or len(sample_shape) != 3 or not isinstance(links[0], Convolution):
        raise Unknown("the kernels want a chain that starts with a convolution of images")
    if not images and (not isinstance(links[-1], Dense) or links[-1].relu):
        raise Unknown("the last layer is not linear")
    return links


def _shaped(module: nn.Module, sample_shape: Sequence[int]) -> list[tuple[str, nn.Module]]:
    """The layers of a module that reconstructs its samples, but for a last `Unflatten`."""
    leaves = _leaves(module)
    with torch.no_grad():
        given = tuple(module(torch.zeros(1, *sample_shape)).shape[1:])
    if given != tuple(sample_shape):
        raise Unknown(f"outputs are {given}, not {tuple(sample_shape)} as the samples")
    return leaves[:-1] if isinstance(leaves[-1][1], nn.Unflatten) else leaves


def _leaves(module: nn.Module) -> list[tuple[str, nn.Module]]:
    if not isinstance(module, nn.Sequential):
        raise Unknown(f"{type(module).__name__} is not an nn.Sequential")
    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        if isinstance(child, nn.Sequential):
            found += [(f"{name}.{inner}", leaf) for inner, leaf in _leaves(child)]
        else:
            found.append((name, child))
    return found


def _extend(links: list[Link], name: str, layer: nn.Module) -> list[Link]:
    """The chain with one more layer."""
    last = links[-1] if links else None
    if isinstance(layer, nn.Conv2d) and _plain(layer) and not isinstance(last, Dense):
        return [*links, Convolution(name, layer)]
    if isinstance(layer, nn.Linear):
        return [*links, Dense(name, layer)]
    if isinstance(layer, nn.Flatten | nn.Identity):
        return links
    if isinstance(layer, nn.ReLU) and isinstance(last, Dense) and not last.relu:
        return [*links[:-1], Dense(last.name, last.layer, relu=True)]
    if isinstance(last, Convolution):
        return [*links[:-1], _follow(last, name, layer)]
    raise Unknown(f"no kernel for layer {name!r} ({type(layer).__name__})")


def _follow(last: Convolution, name: str, layer: nn.Module) -> Convolution:
    """The convolution with one more of norm, ReLU, pool, in this order."""
    fresh = not (last.relu or last.pool)
    if isinstance(layer, nn.GroupNorm) and _normal(layer) and fresh and last.norm is None:
        return Convolution(last.name, last.layer, name, layer)
    if isinstance(layer, nn.ReLU) and fresh:
        return Convolution(last.name, last.layer, last.norm_name, last.norm, relu=True)
    if _halves(layer) and not last.pool:
        pool = "max" if isinstance(layer, nn.MaxPool2d) else "mean"
        return Convolution(last.name, last.layer, last.norm_name, last.norm, last.relu, pool)
    raise Unknown(f"no kernel for layer {name!r} ({type(layer).__name__}) at this place")


def _plain(layer: nn.Conv2d) -> bool:
    square = layer.stride[0] == layer.stride[1] and layer.dilation == (1, 1)
    return square and layer.groups == 1 and layer.padding_mode == "zeros" and layer.bias is not None


def _normal(layer: nn.GroupNorm) -> bool:
    """Channels are stored padded to a power of two; a norm must not count the padding."""
    channels = layer.num_channels
    return layer.affine and channels >= 4 and channels & (channels - 1) == 0


def _halves(layer: nn.Module) -> bool:
    """Whether this is a pool of 2x2 pixels that leaves half of each side."""
    if not isinstance(layer, nn.MaxPool2d | nn.AvgPool2d) or layer.ceil_mode:
        return False
    if isinstance(layer, nn.MaxPool2d):
        plain = layer.dilation in (1, (1, 1)) and not layer.return_indices
    else:
        plain = layer.divisor_override is None
    square = layer.kernel_size in (2, (2, 2)) and layer.stride in (2, (2, 2))
    return plain and square and layer.padding in (0, (0, 0))
