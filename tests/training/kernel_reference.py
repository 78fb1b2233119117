"""How far the kernels are from a module in float64, for the cases that run in the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from coterie.core.params import flat, layout_of
from coterie.core.samples import Pool
from coterie.training.chain import chain_of
from coterie.training.goals import goal_of
from coterie.training.network import Network
from coterie.training.objectives import Classification, Objective, Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam, Optimizer

ROWS, BATCH, STEPS, CLASSES = 2, 3, 2, 5


def rule(optimizer: Optimizer, params: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if isinstance(optimizer, SGD):
        return torch.optim.SGD(
            params, lr, momentum=optimizer.momentum, weight_decay=optimizer.weight_decay
        )
    assert isinstance(optimizer, Adam)
    betas = (optimizer.beta1, optimizer.beta2)
    return torch.optim.Adam(params, lr, betas, weight_decay=optimizer.weight_decay)


LOSSES: dict[type[Objective], Callable[..., torch.Tensor]] = {
    Classification: lambda out, x, y: F.cross_entropy(out, y),
    Regression: lambda out, x, y: F.mse_loss(out, y.double()),
    Reconstruction: lambda out, x, y: F.mse_loss(out, x),
}


def error(
    build: Callable[[], nn.Module],
    shape: tuple[int, ...],
    optimizer: Optimizer | None = None,
    part: set[str] | None = None,
    precision: str = "float32",
    objective: Objective | None = None,
) -> float:
    """How far the kernels' change of the parameters is from a float64 module's, relatively."""
    optimizer, objective = optimizer or SGD(), objective or Classification()
    modules = [build() for _ in range(ROWS)]
    layout = layout_of(modules[0])
    before = torch.stack([flat(module, layout) for module in modules])
    inputs = torch.randint(0, 256, (20, *shape), dtype=torch.uint8)
    if len(shape) == 1:
        inputs = torch.randn(20, *shape)
    targets = torch.randn(20, CLASSES)
    if objective.classifies:
        targets = torch.randint(0, CLASSES, (20,))
    pool = Pool(inputs, targets, (0.5,) * shape[0], (0.4,) * shape[0])
    ids, lr = torch.randint(0, 20, (STEPS, ROWS, BATCH)), torch.tensor([0.1, 0.05])
    names = part or {column.name for column in layout.columns}
    chain = chain_of(modules[0], shape, isinstance(objective, Reconstruction))
    network = Network(chain, layout, pool, (ROWS, BATCH), precision, goal_of(objective))
    network.allow_training(names, optimizer)
    network.flat.copy_(before)
    network.load()
    for step in range(STEPS):
        network.step(ids[step], lr, torch.tensor(step + 1.0))
    network.store()
    after = []
    for row, module in enumerate(modules):
        module.double()
        params = [p for name, p in module.named_parameters() if name in names]
        descent = rule(optimizer, params, float(lr[row]))
        for step in range(STEPS):
            x = pool.read(ids[step, row], torch.float64)
            descent.zero_grad()
            LOSSES[type(objective)](module(x), x, targets[ids[step, row]]).backward()
            descent.step()
        after.append(flat(module, layout))
    wanted = torch.stack(after)
    return float((network.flat.double() - wanted).norm() / (wanted - before.double()).norm())
