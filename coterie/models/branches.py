"""Layers with a branch for each domain (FedCG): z = f_a(z) + lambda sum_d w_d f_{V'_d}(z).

What a domain has of its own is a matrix [out, v], a row for each output of the layer: the filters
of a convolution, the rows of a linear layer, the scale and offset of every channel of a norm.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

# domains; with more, every sample's kernels are mixed before it is convolved, which a GPU's
# kernels do for less work than a convolution for each domain
FEW = {"cpu": 8, "cuda": 0}
NOISE = 0.1  # spread of the domains' scales and offsets: ReLU would never let go of a zero
CONVOLVE: dict[type, Callable[..., Tensor]] = {
    nn.Conv1d: F.conv1d,
    nn.Conv2d: F.conv2d,
    nn.Conv3d: F.conv3d,
}
Projection = Literal["none", "filterwise", "filterwise-bottleneck", "full", "bottleneck"]


@dataclass(frozen=True)
class Branches:
    """What the branches of a layer are like."""

    domains: int  # D
    projection: Projection = "filterwise"  # W
    relu: bool = True  # sigma of V' = sigma(A V W)
    weight: float = 1.0  # lambda before the first round
    learned: bool = True  # False: lambda stays as it is
    shared: bool = True  # False: without f_a and lambda


class Kind(abc.ABC):
    """How layers of a kind have branches."""

    @abc.abstractmethod
    def fits(self, layer: nn.Module) -> bool:
        """Whether it is for this layer."""

    @abc.abstractmethod
    def own(self, layer: nn.Module) -> Tensor:
        """What a domain has of its own, of a freshly initialised layer: [out, v]."""

    def read(self, layer: nn.Module, z: Tensor, alone: bool) -> Tensor:
        """What the branches see of the layer's input; `alone`: nobody else sees it."""
        return z

    @abc.abstractmethod
    def branch(self, layer: nn.Module, z: Tensor, made: Tensor, weights: Tensor) -> Tensor:
        """The sum of what the domains' parameters [D, out, v] make of z, by weights [B, D]."""


class Products(Kind):
    """Linear layers and convolutions: all branches in one operation."""

    def fits(self, layer: nn.Module) -> bool:
        if isinstance(layer, _ConvNd) and type(layer) in CONVOLVE:
            return layer.groups == 1 and layer.padding_mode == "zeros"
        return type(layer) is nn.Linear

    def own(self, layer: nn.Module) -> Tensor:
        return _weight(layer).flatten(1)

    def branch(self, layer: nn.Module, z: Tensor, made: Tensor, weights: Tensor) -> Tensor:
        kernels = made.view(-1, *_weight(layer).shape)  # [D, out, ...]
        few = len(made) <= FEW.get(z.device.type, 0)
        way = self._separately if few else self._mixed
        return way(layer, z, kernels, weights)

    def _separately(self, layer: nn.Module, z: Tensor, kernels: Tensor, weights: Tensor) -> Tensor:
        """Every branch of every sample, weighted and summed."""
        axis = -1 if isinstance(layer, nn.Linear) else 1  # of the outputs
        each = _product(layer, z, kernels.flatten(0, 1))
        each = each.unflatten(axis, kernels.shape[:2])
        axis = each.ndim - 2 if axis == -1 else axis  # of the domains
        shape = [1] * each.ndim
        shape[0], shape[axis] = weights.shape
        total: Tensor = (each * weights.view(shape)).sum(axis)
        return total

    def _mixed(self, layer: nn.Module, z: Tensor, kernels: Tensor, weights: Tensor) -> Tensor:
        """A kernel for every sample; the layer is linear in it, so the result is the same."""
        mixed = (weights @ kernels.flatten(1)).view(-1, *kernels.shape[1:])  # [B, out, ...]
        if isinstance(layer, nn.Linear):
            return torch.einsum("b...i,boi->b...o", z, mixed)
        aside = z.reshape(1, -1, *z.shape[2:])  # samples side by side, a group each
        out = _product(layer, aside, mixed.flatten(0, 1), groups=len(z))
        return out.view(len(z), -1, *out.shape[2:])


class Norms(Kind):
    """Batch norms: scale and offset are a domain's own, the statistics those of all."""

    def fits(self, layer: nn.Module) -> bool:
        return isinstance(layer, _BatchNorm) and layer.affine

    def own(self, layer: nn.Module) -> Tensor:
        assert isinstance(layer, _BatchNorm)
        fresh = torch.stack([layer.weight, layer.bias], dim=1)
        return fresh + NOISE * torch.randn_like(fresh)

    def read(self, layer: nn.Module, z: Tensor, alone: bool) -> Tensor:
        """The normed input."""
        assert isinstance(layer, _BatchNorm)
        if alone:  # its scale is 1 and its offset 0, and somebody has to take the statistics
            out: Tensor = layer(z)
            return out
        known = None if layer.training else layer.running_mean
        spread = None if layer.training else layer.running_var
        return F.batch_norm(z, known, spread, training=known is None, eps=layer.eps)

    def branch(self, layer: nn.Module, z: Tensor, made: Tensor, weights: Tensor) -> Tensor:
        affine = torch.einsum("bd,dcv->bcv", weights, made)
        affine = affine.view(*affine.shape, *[1] * (z.ndim - 2))  # [B, C, 2, 1, 1]
        return affine[:, :, 0] * z + affine[:, :, 1]


class Others(Kind):
    """Any other layer with parameters and without buffers: branch after branch."""

    def fits(self, layer: nn.Module) -> bool:
        if isinstance(layer, nn.RNNBase):  # they also return what they remember
            return False
        whole = not any(layer.children()) and not any(layer.buffers())
        sizes = {p.shape[0] if p.ndim else 0 for p in self._own(layer).values()}
        return whole and len(sizes) == 1 and 0 not in sizes

    def own(self, layer: nn.Module) -> Tensor:
        rows = [p.flatten(1) if p.ndim > 1 else _spread(p) for p in self._own(layer).values()]
        return torch.cat(rows, dim=1)

    def branch(self, layer: nn.Module, z: Tensor, made: Tensor, weights: Tensor) -> Tensor:
        own = self._own(layer)
        sizes = [parameter[0].numel() for parameter in own.values()]
        nothing = {name: torch.zeros_like(p) for name, p in layer.named_parameters()}
        total: Tensor | None = None
        for domain, weight in zip(made, weights.unbind(1), strict=True):
            parts = zip(own.items(), domain.split(sizes, dim=1), strict=True)
            named = {name: part.reshape(like.shape) for (name, like), part in parts}
            out = functional_call(layer, {**nothing, **named}, (z,))
            out = out * weight.view(-1, *[1] * (out.ndim - 1))
            total = out if total is None else total + out
        assert total is not None
        return total

    def _own(self, layer: nn.Module) -> dict[str, Tensor]:
        """The weight where it is a matrix, as of the products; else all parameters."""
        named = dict(layer.named_parameters(recurse=False))
        weight = named.get("weight")
        return {"weight": weight} if weight is not None and weight.ndim > 1 else dict(named)


KINDS: tuple[Kind, ...] = (Products(), Norms(), Others())


def kind_of(layer: nn.Module) -> Kind | None:
    """How a layer has branches; None: it cannot have any."""
    return next((kind for kind in KINDS if kind.fits(layer)), None)


class DomainLayer(nn.Module):
    """A layer and its branches: z = f_a(z) + lambda sum_d w_d f_{V'_d}(z), V' = sigma(A V W)."""

    def __init__(self, layer: nn.Module, options: Branches) -> None:
        super().__init__()
        kind = kind_of(layer)
        assert kind is not None
        self.kind, self.options = kind, options
        self.route: tuple[Tensor, Tensor] | None = None  # w [B, D] and A, while a batch is here
        with torch.no_grad():  # rows of V that are equal would have distance 0
            rows = torch.stack([kind.own(_fresh(layer)) for _ in range(options.domains)])
        self.filters = rows.shape[1], rows.shape[2]  # out, v
        self.shared = layer if options.shared else layer.requires_grad_(False)
        self.domains = nn.Parameter(rows.flatten(1))  # V [D, q]
        self.projection = nn.ParameterList(projection(*self.filters, options.projection))
        if options.shared:
            self.scale = nn.Parameter(torch.tensor([options.weight]), options.learned)  # lambda

    def parameters_of_domains(self, adjacency: Tensor) -> Tensor:
        """V': [D, q]."""
        mixed = adjacency @ self.domains
        rows = mixed.view(-1, self.filters[1]) if "filterwise" in self.options.projection else mixed
        for number, matrix in enumerate(self.projection):
            rows = (F.relu(rows) if number else rows) @ matrix
        made = rows.view_as(mixed)
        return F.relu(made) if self.options.relu else made

    def forward(self, z: Tensor) -> Tensor:
        """What all share, and the sum of the branches."""
        assert self.route is not None
        weights, adjacency = self.route
        made = self.parameters_of_domains(adjacency).view(-1, *self.filters)
        alone = not self.options.shared
        seen = self.kind.read(self.shared, z, alone)
        branch = self.kind.branch(self.shared, seen, made, weights)
        if alone:
            return branch
        out: Tensor = self.shared(z) + self.scale * branch
        return out


def projection(out: int, v: int, kind: Projection) -> list[Tensor]:
    """W, the identity so that ReLU leaves half of V alive; in two through a 16th: at random."""
    if kind == "none":
        return []
    size = v if "filterwise" in kind else out * v
    if not kind.endswith("bottleneck"):
        return [torch.eye(size)]
    narrow = max(size // 16, 1)
    return [torch.randn(size, narrow) / size**0.5, torch.randn(narrow, size) / narrow**0.5]


def _product(layer: nn.Module, z: Tensor, kernels: Tensor, groups: int = 1) -> Tensor:
    if not isinstance(layer, _ConvNd):
        return F.linear(z, kernels)
    shape = (layer.stride, layer.padding, layer.dilation)
    return CONVOLVE[type(layer)](z, kernels, None, *shape, groups)


def _weight(layer: nn.Module) -> Tensor:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight


def _fresh(layer: nn.Module) -> nn.Module:
    """A copy with other values, where the layer can make them."""
    fresh = copy.deepcopy(layer)
    reset = getattr(fresh, "reset_parameters", None)
    if reset is not None:
        reset()
    return fresh


def _spread(values: Tensor) -> Tensor:
    return (values + NOISE * torch.randn_like(values))[:, None]
