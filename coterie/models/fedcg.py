"""FedCG's network (Caldarola et al., 2021): layers of any model with a branch for each domain.

A small classifier says to which of D domains a sample belongs. While it trains, the sample goes
through the branch that the teacher names, and the student learns to name it too; when it is
judged, the branches count as much as the student believes in them. Two others may take the
teacher's place: K-means of the clients' models, or somebody who knows (`by`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.core.samples import Pool
from coterie.errors import InputError, unknown
from coterie.models.branches import Branches, DomainLayer, Projection, kind_of
from coterie.models.registry import Model, Shape, models
from coterie.models.user import build_model, check_model

MOMENTUM = 0.1  # of the running middle, as batch norm's
PIXEL = 255  # a domain d is told by pixels of d / 255
By = Literal["teacher", "clients", "attributes"]


@models.register("fedcg")
@dataclass(frozen=True)
class FedCGModel(Model):
    """Another model, some of whose layers have a branch a domain (FedCG); use with 'fedcg'."""

    base: str | dict[str, Any] = "leaf-femnist"  # the model that is shared: a name, or a table
    layers: tuple[str, ...] = ("conv2",)  # its layers that get branches; 'conv*' are several
    domains: int = 4  # D
    by: By = "teacher"  # who names domains; clients: K-means; attributes: told, the last channel
    shared: bool = True  # False: these layers have nothing but branches, and no lambda
    projection: Projection = "filterwise"  # W; none, full: of all filters; -bottleneck: a 16th
    relu: bool = True  # sigma of V' = sigma(A V W)
    weight: float = 1.0  # lambda before the first round
    learned: bool = True  # False: lambda stays as it is
    student: float = 0.1  # the student's learning rate, in units of [train] lr
    soft: bool = True  # judged by the student's probabilities; False: by its best guess alone
    algorithm: ClassVar[str] = "fedcg"
    centred: bool = True  # scores less the teacher's running mean: else one domain begins with all

    def __post_init__(self) -> None:
        if self.domains < 1:
            raise InputError(f"domains must be at least 1, got {self.domains}")
        if not self.layers:
            raise InputError("no layer has branches; name some, such as layers = ['conv*']")
        if not 0 <= self.student < math.inf:
            raise InputError(f"student must be 0 or more, got {self.student:g}")
        if self.spec.get("name") == "fedcg":
            raise InputError("base is 'fedcg' itself; use the model that is to have branches")
        check_model(self.spec)

    @property
    def weighs_losses(self) -> bool:
        return self.by != "attributes" and self.student not in (0, 1)

    def problem(self, pool: Pool) -> str:
        if self.by != "attributes" or not len(pool.inputs) or _told(pool, self.domains):
            return ""
        return (
            f"with by = 'attributes' the last channel of every sample is its domain, 0 to "
            f"{self.domains - 1}, and here it is not, or no longer after a shift or normalising; "
            "use data that tell it, such as { name = 'celeba', domains = true } with domains = 32"
        )

    @property
    def spec(self) -> dict[str, Any]:
        """The table of the base model."""
        return {"name": self.base} if isinstance(self.base, str) else self.base

    @property
    def branches(self) -> Branches:
        """What the branches of each layer are like."""
        return Branches(
            self.domains, self.projection, self.relu, self.weight, self.learned, self.shared
        )

    def build(self, shape: Shape) -> nn.Module:
        if self.by == "attributes":
            return DomainNet(build_model(self.spec, _without_domain(shape))(), None, self)
        base = build_model(self.spec, shape)()
        return DomainNet(base, classifier(shape, self.domains), self)


def _told(pool: Pool, domains: int) -> bool:
    """Whether all samples, as a model reads them, say their domain."""
    last = pool.inputs[:, -1].flatten(1) if pool.inputs.ndim == 4 else pool.inputs[:, -1:]
    said = last[:, 0].double()
    if pool.inputs.dtype == torch.uint8:
        scale, offset = (part.flatten()[-1] for part in pool.affine)
        said = said * scale + offset
    if pool.inputs.ndim == 4:
        said = PIXEL * said
    near = (said - said.round()).abs() < 1e-3
    inside = (said.round() >= 0) & (said.round() < domains)
    return bool((last == last[:, :1]).all() and (near & inside).all())


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


def _without_domain(shape: Shape) -> Shape:
    """The samples as the base sees them: their last channel, or value, is their domain."""
    first, *rest = shape.sample
    if first < 2:
        raise InputError(
            f"model 'fedcg' with by = 'attributes' takes the last channel of a sample as its "
            f"domain, got samples of shape {shape.sample}; use data that tell domains, such as "
            "{ name = 'celeba', domains = true }"
        )
    return Shape((first - 1, *rest), shape.outputs)


class DomainNet(nn.Module):
    """The shared network with its branches, and who names the domains of samples."""

    adjacency: Tensor
    middle: Tensor
    seen: Tensor
    assigned: Tensor

    def __init__(self, base: nn.Module, student: nn.Module | None, options: FedCGModel) -> None:
        super().__init__()
        self.options = options
        self.base = base
        for name in chosen(base, options.layers):
            _branch(base, name, options.branches)
        self.student = student
        if options.by == "teacher" and student is not None:
            self.teacher = copy.deepcopy(student).requires_grad_(False)  # never trained locally
            self.register_buffer("middle", torch.zeros(options.domains))  # of its scores
        elif options.by == "clients":
            self.register_buffer("assigned", torch.eye(options.domains)[0])  # w of all samples
        self.register_buffer("adjacency", torch.eye(options.domains))
        self.register_buffer("seen", torch.zeros(options.domains))  # samples of each, trained on

    @property
    def head(self) -> tuple[str, ...] | None:
        """The base's own head."""
        names = getattr(self.base, "head", None)
        return None if names is None else tuple(f"base.{name}" for name in names)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Logits; in training also the student's loss of every sample, where there is one."""
        if self.student is None:
            x, weights = self._told(x)
        else:
            weights = self._named(x) if self.training else self._believed(x)
        if self.training:
            self.seen.add_(weights.sum(0))
        logits = self._through(x, weights)
        if self.student is None or not self.training:
            return logits
        loss = F.cross_entropy(self._guess(x), weights.argmax(1), reduction="none")
        return logits, self.options.student * loss

    def _told(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The samples without their last channel, and the domain that it says."""
        last = x[:, -1]
        domain = PIXEL * last[:, 0, 0] if x.ndim == 4 else last
        return x[:, :-1], self._one_hot(domain.round(), x)

    def _named(self, x: Tensor) -> Tensor:
        """The domain that the teacher, or K-means, says: one-hot [B, D]."""
        if self.options.by == "clients":
            return self.assigned.expand(len(x), -1)
        scores = self.teacher(x)
        if self.options.centred:
            self.middle.mul_(1 - MOMENTUM).add_(MOMENTUM * scores.mean(0))
        return self._one_hot((scores - self.middle).argmax(1), x)

    def _guess(self, x: Tensor) -> Tensor:
        """The student's scores; it begins as the teacher, and so with the same middle."""
        assert self.student is not None
        scores: Tensor = self.student(x)
        return scores - self.middle if self.options.by == "teacher" else scores

    def _believed(self, x: Tensor) -> Tensor:
        scores = self._guess(x)
        return scores.softmax(1) if self.options.soft else self._one_hot(scores.argmax(1), x)

    def _one_hot(self, domain: Tensor, x: Tensor) -> Tensor:
        numbers = torch.arange(self.options.domains, device=x.device)
        return (domain[:, None] == numbers).to(x.dtype)

    def _through(self, x: Tensor, weights: Tensor) -> Tensor:
        for layer in modules_of(self.base):
            layer.route = (weights, self.adjacency)
        logits: Tensor = self.base(x)
        for layer in modules_of(self.base):
            layer.route = None
        return logits


def modules_of(base: nn.Module) -> list[DomainLayer]:
    """The layers with branches."""
    return [layer for layer in base.modules() if isinstance(layer, DomainLayer)]


def chosen(base: nn.Module, names: Iterable[str]) -> list[str]:
    """The layers of these names; a name with a * is all that fit it and can have branches."""
    layers = {name: layer for name, layer in base.named_modules() if name}
    able = [name for name, layer in layers.items() if kind_of(layer)]
    found: dict[str, None] = {}
    for name in names:
        fitting = [known for known in able if fnmatchcase(known, name)] if "*" in name else [name]
        if not fitting or fitting[0] not in layers:
            raise unknown("layer of the base model:", name, layers)
        found |= dict.fromkeys(fitting)
    for name in found:
        if name not in able:
            raise InputError(
                f"layer {name!r} is a {type(layers[name]).__name__}; FedCG's branches are for "
                f"layers with parameters of their own, of this model: {', '.join(able)}"
            )
    return list(found)


def _branch(base: nn.Module, name: str, options: Branches) -> None:
    """Give a layer of the base its branches."""
    parent, _, own = name.rpartition(".")
    home = base.get_submodule(parent)
    setattr(home, own, DomainLayer(base.get_submodule(name), options))
