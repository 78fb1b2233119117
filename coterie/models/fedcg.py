"""FedCG's network (Caldarola et al., 2021): layers of any model with a branch for each domain.

A small classifier says to which of D domains a sample belongs. While it trains, the sample goes
through the branch that the teacher names, and the student learns to name it too; when it is
judged, the branches count as much as the student believes in them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.errors import InputError, unknown
from coterie.models.registry import Model, Shape, models
from coterie.models.user import build_model

Projection = Literal["none", "filterwise", "full", "bottleneck"]


@models.register("fedcg")
@dataclass(frozen=True)
class FedCGModel(Model):
    """Another model, some of whose layers have a branch a domain (FedCG); use with 'fedcg'."""

    base: str = "leaf-femnist"  # the model that is shared
    layers: tuple[str, ...] = ("conv2",)  # its convolutions and linear layers that get branches
    domains: int = 4  # D
    projection: Projection = "filterwise"  # W: of each filter, of all at once, through q / 16
    relu: bool = True  # sigma of V' = sigma(A V W)
    weight: float = 1.0  # lambda before the first round
    learned: bool = True  # False: lambda stays as it is
    student: float = 0.1  # the student's learning rate, in units of [train] lr
    soft: bool = True  # judged by the student's probabilities; False: by its best guess alone

    def build(self, shape: Shape) -> nn.Module:
        base = build_model({"name": self.base}, shape)()
        return DomainNet(base, classifier(shape, self.domains), self)


def classifier(shape: Shape, domains: int) -> nn.Module:
    """Which domain: two 3x3 convolutions and their mean; for tables a hidden layer."""
    if len(shape.sample) != 3:
        (features,) = shape.sample
        return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, domains))
    return nn.Sequential(
        nn.Conv2d(shape.sample[0], 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, domains),
    )


class DomainNet(nn.Module):
    """The shared network with its branches, the student, the teacher and the adjacency."""

    adjacency: Tensor

    def __init__(self, base: nn.Module, student: nn.Module, options: FedCGModel) -> None:
        super().__init__()
        self.options = options
        self.base = base
        for name in options.layers:
            _branch(base, name, options)
        self.student = student
        self.teacher = copy.deepcopy(student).requires_grad_(False)  # never trained locally
        self.register_buffer("adjacency", torch.eye(options.domains))

    @property
    def head(self) -> tuple[str, ...] | None:
        """The base's own head."""
        names = getattr(self.base, "head", None)
        return None if names is None else tuple(f"base.{name}" for name in names)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Logits; in training also the student's loss of every sample."""
        if not self.training:
            return self._through(x, self._believed(x))
        domain = self.teacher(x).argmax(1)
        logits = self._through(x, self._one_hot(domain, x))
        loss = F.cross_entropy(self.student(x), domain, reduction="none")
        return logits, self.options.student * loss

    def _through(self, x: Tensor, weights: Tensor) -> Tensor:
        for layer in modules_of(self.base):
            layer.route = (weights, self.adjacency)
        logits: Tensor = self.base(x)
        for layer in modules_of(self.base):
            layer.route = None
        return logits

    def _believed(self, x: Tensor) -> Tensor:
        scores = self.student(x)
        return scores.softmax(1) if self.options.soft else self._one_hot(scores.argmax(1), x)

    def _one_hot(self, domain: Tensor, x: Tensor) -> Tensor:
        numbers = torch.arange(self.options.domains, device=x.device)
        return (domain[:, None] == numbers).to(x.dtype)


class DomainLayer(nn.Module):
    """z = f_a(z) + lambda sum_d w_d f_{V'_d}(z), with V' = sigma(A V W)."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, options: FedCGModel) -> None:
        super().__init__()
        self.shared, self.options = layer, options
        self.route: tuple[Tensor, Tensor] | None = None  # w [B, D] and A, while a batch is here
        fresh = [copy.deepcopy(layer) for _ in range(options.domains)]
        for one in fresh:
            one.reset_parameters()  # rows of V that are equal would have distance 0
        rows = torch.stack([one.weight.detach().flatten() for one in fresh])
        self.domains = nn.Parameter(rows)  # V [D, q]
        self.projection = nn.ParameterList(_projection(layer.weight, options.projection))
        self.scale = nn.Parameter(torch.tensor([options.weight]), options.learned)  # lambda

    def parameters_of_domains(self, adjacency: Tensor) -> Tensor:
        """V': [D, q]."""
        mixed = adjacency @ self.domains
        if self.options.projection == "filterwise":
            filters = mixed.view(-1, self.shared.weight[0].numel())
            mixed = (filters @ self.projection[0]).view_as(mixed)
        elif self.options.projection == "bottleneck":
            mixed = F.relu(mixed @ self.projection[0]) @ self.projection[1]
        elif self.options.projection == "full":
            mixed = mixed @ self.projection[0]
        return F.relu(mixed) if self.options.relu else mixed

    def forward(self, z: Tensor) -> Tensor:
        """What all share, and the sum of the branches."""
        assert self.route is not None
        weights, adjacency = self.route
        made = self.parameters_of_domains(adjacency)
        kernels = made.view(-1, *self.shared.weight.shape[1:])  # [D * out, ...]
        each = self._convolved(z, kernels)
        each = each.view(len(z), len(made), -1, *each.shape[2:])
        branch = (each * weights.view(*weights.shape, *[1] * (each.ndim - 2))).sum(1)
        out: Tensor = self.shared(z) + self.scale * branch
        return out

    def _convolved(self, z: Tensor, kernels: Tensor) -> Tensor:
        if isinstance(self.shared, nn.Linear):
            return F.linear(z, kernels)
        layer = self.shared
        return F.conv2d(z, kernels, None, layer.stride, layer.padding, layer.dilation)


def modules_of(base: nn.Module) -> list[DomainLayer]:
    """The layers with branches."""
    return [layer for layer in base.modules() if isinstance(layer, DomainLayer)]


def _branch(base: nn.Module, name: str, options: FedCGModel) -> None:
    """Give a layer of the base its branches."""
    layers = dict(base.named_modules())
    if name not in layers:
        raise unknown("layer of the base model:", name, [known for known in layers if known])
    layer = layers[name]
    fits = isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)
    if not isinstance(layer, nn.Conv2d | nn.Linear) or not fits:
        raise InputError(
            f"layer {name!r} is a {type(layer).__name__}; FedCG's branches are for linear layers "
            "and convolutions of one group"
        )
    parent, _, own = name.rpartition(".")
    setattr(layers[parent], own, DomainLayer(layer, options))


def _projection(weight: Tensor, kind: Projection) -> list[Tensor]:
    """W, near the identity so that ReLU leaves half of V alive."""
    q, of_filter = weight.numel(), weight[0].numel()
    if kind == "none":
        return []
    if kind == "bottleneck":
        narrow = max(q // 16, 1)
        return [torch.randn(q, narrow) / q**0.5, torch.randn(narrow, q) / narrow**0.5]
    return [torch.eye(of_filter if kind == "filterwise" else q)]
