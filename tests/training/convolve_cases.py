"""The cases of test_kernels.py for convolutions of any module under `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unittest import mock

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, branches, build_model
from coterie.training import TrainingSettings, make_engine
from coterie.training.convolve import OwnConvolutions
from coterie.training.kernels import convolution
from coterie.training.objectives import Classification
from coterie.training.optimizers import SGD
from coterie.training.stacked import StackedEngine

from .kernel_reference import CLASSES, ROWS

COMMON = {"name": "small-cnn", "width": 8}


class Strange(nn.Module):
    """Not a sequence: strides, sides that differ, groups, no bias, a layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 16, (3, 2), stride=2, padding=(1, 0), bias=False)
        self.same = nn.Conv2d(16, 16, 2, padding="same", groups=2)
        self.last = nn.Conv2d(16, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.wide(x)
        z = z + self.same(torch.relu(self.same(z)))
        return self.last(z).mean((2, 3))


def gradients(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> list[dict[str, Tensor]]:
    """Of every row's own module and batch: by the kernels, and by torch."""
    torch.manual_seed(4)
    modules = [build() for _ in range(ROWS)]
    named = {
        name: torch.stack([dict(module.named_parameters())[name].detach() for module in modules])
        for name, _ in modules[0].named_parameters()
    }
    x = torch.randn(ROWS, 2, *shape)

    def loss(named: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(modules[0], named, (x,))
        return out.square().mean()

    with OwnConvolutions("float32"):
        own = vmap(grad(loss))(named, x)
    return [own, vmap(grad(loss))(named, x)]


def check_gradients() -> bool:
    with mock.patch.object(convolution, "forward", wraps=convolution.forward) as kernel:
        own, plain = gradients(Strange, (3, 9, 8))
    assert kernel.call_count == 4, kernel.call_count
    return all(torch.allclose(own[name], plain[name], atol=1e-5) for name in plain)


def check_left_alone() -> bool:
    """What the kernels cannot do: dilation, many channels, groups of few filters, float64."""
    left = [
        lambda: nn.Conv2d(3, 4, 2, dilation=2),
        lambda: nn.Conv2d(3, 200, 2),
        lambda: nn.Conv2d(3, 3, 2, groups=3),
        lambda: nn.Conv2d(3, 8, 2, stride=(2, 1)),
        lambda: nn.Conv2d(3, 8, 2).double(),
    ]
    right = True
    with mock.patch.object(convolution, "forward") as kernel:
        for build in left[:-1]:
            own, plain = gradients(build, (3, 5, 5))
            right &= all(torch.equal(own[name], plain[name]) for name in plain)
        with OwnConvolutions("float32"):
            left[-1]()(torch.randn(1, 3, 5, 5, dtype=torch.float64))
    return right and not kernel.called


def make_nodes(spec: dict[str, object], own: bool) -> Nodes:
    torch.manual_seed(1)
    images = torch.randint(0, 256, (30, 2, 6, 6), dtype=torch.uint8)
    images[:, 1] %= 3  # a domain, where it is told
    pool = Pool(images, torch.arange(30) % CLASSES, (0.0,) * 2, (1.0,) * 2)
    settings = TrainingSettings(
        Classification(), SGD(0.5), CLASSES, 3, torch.device("cpu"), torch.float32
    )
    build = build_model(spec, Shape((2, 6, 6), CLASSES))
    engine = make_engine(build, (2, 6, 6), settings, path="stacked")
    assert isinstance(engine, StackedEngine)
    if own:
        engine.convolutions = partial(OwnConvolutions, "float32")
    count = torch.tensor([5, 3, 4])
    samples = Samples(pool, torch.arange(30), torch.arange(3) * 10, count)
    population = Population(3, (1,), engine, LocalWork(3, 2, None, 0.1))
    return Nodes(population, torch.arange(3), samples, samples, samples, torch.full((3,), 0.1))


def outputs(spec: dict[str, object], own: bool) -> list[Tensor]:
    nodes = make_nodes(spec, own)
    params = nodes.train(nodes.initial_params(), 0)
    return [params, nodes.loss(params, 0), nodes.gradient(params, 0), nodes.test(params).loss]


def same_outputs(spec: dict[str, object]) -> bool:
    with mock.patch.object(convolution, "forward", wraps=convolution.forward) as kernel:
        own = outputs(spec, True)
    pairs = zip(own, outputs(spec, False), strict=True)
    return kernel.called and all(torch.allclose(a, b, atol=1e-4) for a, b in pairs)


def check_branches() -> bool:
    """Of domains, convolved apart and mixed before."""
    told = {"name": "fedcg", "by": "attributes", "base": COMMON}
    spec = {**told, "layers": ["conv2", "norm2"], "domains": 3}
    right = True
    for few in (0, 8):
        with mock.patch.dict(branches.FEW, cpu=few):
            right &= same_outputs(spec)
    return right


CONVOLVE_CASES: dict[str, Callable[[], bool]] = {
    "convolutions-of-any-module": check_gradients,
    "convolutions-that-kernels-cannot-do": check_left_alone,
    "any-module-trains-and-is-scored": lambda: same_outputs(COMMON),
    "branches-of-domains": check_branches,
}
