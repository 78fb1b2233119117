"""The cases of test_kernels.py; run with TRITON_INTERPRET=1, prints a line a case."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from coterie.core import LocalWork, Nodes, Population
from coterie.core.draws import draw, purpose_word
from coterie.core.draws_gpu import draw_on_gpu
from coterie.core.params import flat, layout_of
from coterie.core.samples import Pool, Samples
from coterie.models import Shape, build_model
from coterie.training import TrainingSettings, make_engine, objectives, optimizers
from coterie.training.chain import Unknown, chain_of
from coterie.training.network import Network
from coterie.training.optimizers import SGD, Adam, Optimizer

ROWS, BATCH, STEPS, CLASSES = 2, 3, 2, 5


def small(width: int = 4, channels: int = 1) -> Callable[[], nn.Module]:
    return build_model({"name": "small-cnn", "width": width}, Shape((channels, 8, 8), CLASSES))


def odd() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 20, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20 * 4, 7),
        nn.ReLU(),
        nn.Linear(7, CLASSES),
    )


def rule(optimizer: Optimizer, params: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if isinstance(optimizer, SGD):
        return torch.optim.SGD(
            params, lr, momentum=optimizer.momentum, weight_decay=optimizer.weight_decay
        )
    return torch.optim.Adam(params, lr)


def error(
    build: Callable[[], nn.Module],
    shape: tuple[int, int, int],
    optimizer: Optimizer | None = None,
    part: set[str] | None = None,
    precision: str = "float32",
) -> float:
    """How far the kernels' change of the parameters is from a float64 module's, relatively."""
    optimizer = optimizer or SGD()
    modules = [build() for _ in range(ROWS)]
    layout = layout_of(modules[0])
    before = torch.stack([flat(module, layout) for module in modules])
    images = torch.randint(0, 256, (20, *shape), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (20,))
    pool = Pool(images, labels, (0.5,) * shape[0], (0.4,) * shape[0])
    ids, lr = torch.randint(0, 20, (STEPS, ROWS, BATCH)), torch.tensor([0.1, 0.05])
    names = part or {column.name for column in layout.columns}
    network = Network(chain_of(modules[0], shape), layout, pool, ROWS, BATCH, precision)
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
            x = (images[ids[step, row]].double() / 255 - 0.5) / 0.4
            descent.zero_grad()
            F.cross_entropy(module(x), labels[ids[step, row]]).backward()
            descent.step()
        after.append(flat(module, layout))
    wanted = torch.stack(after)
    return float((network.flat.double() - wanted).norm() / (wanted - before.double()).norm())


def make_nodes(path: str) -> Nodes:
    torch.manual_seed(1)
    images = torch.randint(0, 256, (100, 1, 8, 8), dtype=torch.uint8)
    pool = Pool(images, torch.arange(100) % CLASSES, (0.5,), (0.5,))
    cpu = torch.device("cpu")
    settings = TrainingSettings(
        objectives.build("classification"), optimizers.build("sgd"), CLASSES, 4, cpu, torch.float32
    )
    engine = make_engine(small(), (1, 8, 8), settings, path=path)
    count = torch.tensor([20, 7, 0, 13])
    samples = Samples(pool, torch.arange(100), torch.arange(4) * 20, count)
    population = Population(4, (1,), engine, LocalWork(4, 3, None, 0.1))
    lr = torch.tensor([0.1, 0.2, 0.1, 0.05])
    return Nodes(population, torch.arange(4), samples, samples, samples, lr)


def engine_outputs(path: str) -> list[torch.Tensor]:
    nodes = make_nodes(path)
    params = nodes.train(nodes.initial_params(), 0)
    params = nodes.train(params, 1, epochs=1)
    params = nodes.train(params, 2, part=nodes.layout.head)
    core, head = params[:, nodes.layout.core], params[:, nodes.layout.head]
    heads = torch.stack([head, 2 * head, -head], dim=1)
    scores = nodes.test(params)
    assert scores.confusion is not None
    return [
        params,
        nodes.loss(params, 0, samples=9),
        nodes.head_losses(core, heads, 0, samples=9),
        nodes.head_losses(core, heads, 0),
        scores.loss,
        scores.confusion,
    ]


def check_engine() -> bool:
    pairs = zip(engine_outputs("fused"), engine_outputs("stacked"), strict=True)
    return all(torch.allclose(a, b, atol=1e-5, equal_nan=True) for a, b in pairs)


def check_draws() -> bool:
    seed, node = torch.tensor([123456789012345, 7, 2**61 + 5]), torch.tensor([0, 5, 99999])
    return all(
        torch.equal(
            draw(seed, purpose, t, node, 141),
            draw_on_gpu(seed, purpose_word(purpose), t, node, 141),
        )
        for t in (0, 5, 4_000_000_000)
        for purpose in ("a", "train/0")
    )


def check_chain() -> bool:
    norm = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    try:
        chain_of(norm, (1, 8, 8))
    except Unknown as reason:
        return "'1' (BatchNorm2d)" in str(reason)
    return False


CASES: dict[str, Callable[[], bool]] = {
    "draws": check_draws,
    "norm-relu-pool": lambda: error(small(), (1, 8, 8)) < 1e-5,
    "momentum-decay": lambda: (
        error(small(16, 3), (3, 8, 8), SGD(momentum=0.9, weight_decay=0.01)) < 1e-5
    ),
    "strides-odd-sizes-two-linear-layers": lambda: error(odd, (2, 13, 13)) < 1e-5,
    "adam": lambda: error(small(), (1, 8, 8), Adam()) < 1e-4,
    "head-only": lambda: error(small(), (1, 8, 8), part={"fc.weight", "fc.bias"}) < 1e-5,
    "core-layer-only": lambda: (
        error(
            small(),
            (1, 8, 8),
            part={"conv2.weight", "conv2.bias", "norm2.weight", "norm2.bias"},
        )
        < 1e-5
    ),
    "tf32-runs": lambda: error(small(), (1, 8, 8), precision="tf32") < 2e-2,
    "engine-agrees-with-stacked": check_engine,
    "chain-refuses-unknown-layers": check_chain,
}


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, check in CASES.items():
        print("ok" if check() else "FAIL", name, flush=True)  # noqa: T201
