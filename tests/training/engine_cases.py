"""Cases of local training, and what torch.optim makes of one module in each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core import LocalWork, Nodes
from coterie.core.params import flat
from coterie.models.autoencoder import Autoencoder
from coterie.models.convolutional import SmallCNN
from coterie.models.registry import Shape
from coterie.training.objectives import Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam

from ..world import World, normed

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
SHAKY, DECAY = SGD(momentum=0.9, weight_decay=0.01), SGD(weight_decay=0.1)


def cnn() -> nn.Module:
    return SmallCNN(width=2).build(Shape((1, 4, 4), 3))


def autoencoder() -> nn.Module:
    return Autoencoder().build(Shape((1, 12, 12), 0))


def normed_images() -> nn.Module:
    """No bias before the norm: its gradient is 0 but for rounding, which Adam would blow up."""
    convolution = nn.Conv2d(1, 2, 3, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def values() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 2))


LOSSES: dict[str, Loss] = {
    "Classification": lambda out, x, y: F.cross_entropy(out, y),
    "Regression": lambda out, x, y: F.mse_loss(out, y),
    "Reconstruction": lambda out, x, y: F.mse_loss(out, x),
}


@dataclass(frozen=True)
class Case:
    world: World
    part: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


HEADED = World(head=("2",))


NORMED = World(build=normed, head=("3",), optimizer=SHAKY)


CASES = {
    "plain": Case(World()),
    "momentum and decay": Case(World(optimizer=SHAKY)),
    "adam": Case(World(optimizer=Adam(weight_decay=0.01))),
    "ragged epochs": Case(
        World(counts=(10, 4, 7, 1, 9), optimizer=SHAKY, work=LocalWork(2, None, 2.0, 0.1))
    ),
    "ragged epochs with adam": Case(
        World(counts=(10, 4, 7, 1, 9), optimizer=Adam(), work=LocalWork(2, None, 1.0, 0.1))
    ),
    "the head alone": Case(replace(HEADED, optimizer=SHAKY), part="head"),
    "the core alone": Case(replace(HEADED, optimizer=SHAKY), part="core"),
    "a correction": Case(World(optimizer=SHAKY), extra={"correction": True}),
    "a correction of the head": Case(HEADED, part="head", extra={"correction": True}),
    "a proximal term": Case(World(optimizer=SHAKY), extra={"proximal": 0.5}),
    "both pulls with adam": Case(
        World(optimizer=Adam()), extra={"proximal": 0.5, "correction": True}
    ),
    "single entries": Case(World(optimizer=SHAKY), extra={"mask": True}),
    "single entries with adam": Case(World(optimizer=Adam()), extra={"mask": True}),
    "single entries under batch norm": Case(NORMED, extra={"mask": True}),
    "group norm": Case(World(build=cnn, shape=(1, 4, 4), optimizer=SHAKY)),
    "batch norm": Case(NORMED),
    "batch norm with ragged epochs": Case(
        replace(NORMED, counts=(10, 4, 7, 3, 9), work=LocalWork(2, None, 2.0, 0.1))
    ),
    "batch norm with pulls": Case(NORMED, extra={"proximal": 0.5, "correction": True}),
    "batch norm on images": Case(World(build=normed_images, shape=(1, 4, 4), optimizer=Adam())),
    "regression": Case(World(build=values, objective=Regression(), classes=0)),
    "reconstruction": Case(
        World(
            n=3, build=autoencoder, objective=Reconstruction(), shape=(1, 12, 12), optimizer=SHAKY
        )
    ),
}


def ask(nodes: Nodes, params: Tensor, case: Case) -> Tensor:
    extra = dict(case.extra)
    if extra.pop("correction", False):
        extra["correction"] = correction_like(params)
    part = mask_like(params) if extra.pop("mask", False) else part_of(nodes, case)
    return nodes.train(params, 1, part=part, **extra)


def mask_like(params: Tensor) -> Tensor:
    return correction_like(params) > 0


def part_of(nodes: Nodes, case: Case) -> slice | None:
    return getattr(nodes.layout, case.part) if case.part else None


def correction_like(params: Tensor) -> Tensor:
    random = torch.Generator().manual_seed(2)
    return torch.randn(params.shape, dtype=params.dtype, generator=random) * 0.1


def literal(nodes: Nodes, params: Tensor, case: Case) -> Tensor:
    """One module at a time, torch.optim, the whole batch loss."""
    rows = [literal_row(nodes, params, case, row) for row in range(len(nodes))]
    return torch.stack(rows)


def literal_row(nodes: Nodes, params: Tensor, case: Case, row: int) -> Tensor:
    world, layout = case.world, nodes.layout
    module = world.build().to(params.dtype).train()
    module.load_state_dict(layout.unflatten(params[row]), strict=False)
    inside = part_of(nodes, case) or slice(0, layout.size)
    columns = {c.name: c for c in layout.columns}
    moving = {
        name: p
        for name, p in module.named_parameters()
        if inside.start <= columns[name].start < inside.stop
    }
    anchor = {name: p.detach().clone() for name, p in moving.items()}
    pull = layout.unflatten(correction_like(params)[row]) if "correction" in case.extra else {}
    optimizer = torch_optimizer(world, list(moving.values()))
    steps, batch = int(nodes.steps()[row]), world.work.batch
    pick = torch.tensor([row])
    ids = nodes.train_data[pick].shuffled(
        nodes.seed[pick], nodes.ids[pick], 1, "train", steps * batch
    )
    for now in ids[0].split(batch) if steps else ():
        x, y = nodes.train_data.pool.inputs[now], nodes.train_data.pool.targets[now]
        optimizer.zero_grad()
        LOSSES[type(world.objective).__name__](module(x), x, y).backward()
        for name, parameter in moving.items():
            parameter.grad += pull.get(name, 0)
            parameter.grad += case.extra.get("proximal", 0) * (parameter.detach() - anchor[name])
        optimizer.step()
        if "mask" in case.extra:
            row_now = torch.where(mask_like(params)[row], flat(module, layout), params[row])
            module.load_state_dict(layout.unflatten(row_now), strict=False)
    return flat(module, layout)


def torch_optimizer(world: World, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    rule, lr = world.optimizer, world.work.lr
    if isinstance(rule, Adam):
        return torch.optim.Adam(
            parameters, lr, (rule.beta1, rule.beta2), rule.eps, rule.weight_decay
        )
    assert isinstance(rule, SGD)
    return torch.optim.SGD(parameters, lr, rule.momentum, weight_decay=rule.weight_decay)
