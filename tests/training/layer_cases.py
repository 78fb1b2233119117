"""The cases of test_kernels.py for single kinds of layers, in small models."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from unittest import mock

import torch
from torch import nn

from coterie.core import LocalWork, Nodes, Population
from coterie.core.samples import Pool, Samples
from coterie.training import TrainingSettings, make_engine
from coterie.training.fused import FusedEngine
from coterie.training.kernels import convolution
from coterie.training.objectives import Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam

from .kernel_reference import CLASSES, error


def autoencoder() -> nn.Module:
    """The layers of the model `autoencoder`, for images of 8x8."""
    encoder = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Upsample(scale_factor=2), nn.ConvTranspose2d(16, 6, 3), nn.ReLU(),
        nn.Upsample(scale_factor=2), nn.Conv2d(6, 1, 3, padding=1), nn.Sigmoid(),
    )  # fmt: skip
    return nn.Sequential(OrderedDict(encoder=encoder, decoder=decoder))


def transposed() -> nn.Module:
    """A stride, a kernel that is not square, and padding on both sides of it."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 5, (3, 2), stride=2, padding=(2, 0), output_padding=(1, 0)),
        nn.Sigmoid(),
        nn.ConvTranspose2d(5, 3, 3, padding=1, bias=False),
        nn.Flatten(),
        nn.Linear(3 * 6 * 6, CLASSES),
    )


def enlarged() -> nn.Module:
    return nn.Sequential(
        nn.Upsample(scale_factor=2),
        nn.Conv2d(3, 6, 2, padding="same"),
        nn.Upsample(scale_factor=(3, 1)),
        nn.Conv2d(6, 4, 3, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.ReLU(),
        nn.Linear(4, CLASSES),
    )


def sigmoids(pool: nn.Module) -> nn.Module:
    """Channels are stored padded (3 as 4, 6 as 8, 12 as 16), and sigmoid(0) is not 0."""
    return nn.Sequential(
        nn.GroupNorm(3, 3),
        nn.Conv2d(3, 6, 3, padding=1),
        nn.Sigmoid(),
        pool,
        nn.Conv2d(6, 12, 2),
        nn.GroupNorm(4, 12),
        nn.Sigmoid(),
        pool,
        nn.Flatten(),
        nn.Linear(12, 7),
        nn.Sigmoid(),
        nn.Linear(7, CLASSES),
    )


def orders() -> nn.Module:
    """Layers in an order that needs several passes, one of them used twice."""
    again = nn.ReLU()
    return nn.Sequential(
        nn.MaxPool2d(2), nn.Conv2d(2, 4, 3, padding=1), nn.AvgPool2d(2), again,
        nn.GroupNorm(2, 4), nn.Dropout(0.0), nn.MaxPool2d(2), nn.Flatten(), again,
        nn.Linear(16, 6), again, nn.Linear(6, CLASSES),
    )  # fmt: skip


def without_bias() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, bias=False), nn.ReLU(), nn.ConvTranspose2d(5, 4, 2, bias=False),
        nn.Flatten(), nn.Linear(4 * 5 * 4, CLASSES, bias=False),
    )  # fmt: skip


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.ConvTranspose2d(4, 3, 2),
        nn.Flatten(), nn.Linear(3 * 5 * 4, CLASSES),
    )  # fmt: skip


def two() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2), nn.Flatten(),
        nn.Linear(2 * 49, CLASSES),
    )  # fmt: skip


def mlp(features: int, outputs: int = CLASSES) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(features, 6), nn.ReLU(), nn.Linear(6, outputs))


def check_parts() -> bool:
    """Parts that cut a layer: its weight trains and its bias does not, or the other way round."""
    parts = [{"0.weight"}, {"3.bias", "1.weight"}, {"1.bias"}, {"3.weight", "5.bias"}]
    return all(error(normed, (2, 6, 5), SGD(0.9), part) < 1e-5 for part in parts)


def check_halves() -> bool:
    """Weight gradients in two parts, as few rows with many pixels have them."""
    with mock.patch.object(convolution, "weight_parts", lambda *_: 2):
        rules = [SGD(), SGD(0.9), Adam(0.8, 0.9, weight_decay=0.1)]
        return all(error(two, (2, 8, 8), rule) < 1e-4 for rule in rules)


def outputs_of(path: str) -> list[torch.Tensor]:
    """What two nodes with an autoencoder get from an engine."""
    torch.manual_seed(4)
    images = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8)
    pool = Pool(images, torch.zeros(8, dtype=torch.int64), (0.0,), (1.0,))
    cpu = torch.device("cpu")
    settings = TrainingSettings(Reconstruction(), Adam(), 0, 2, cpu, torch.float32)
    engine = make_engine(autoencoder, (1, 8, 8), settings, ("decoder",), path)
    assert isinstance(engine, FusedEngine) == (path == "fused")
    samples = Samples(pool, torch.arange(8), torch.tensor([0, 5]), torch.tensor([5, 3]))
    population = Population(2, (1,), engine, LocalWork(2, 2, None, 0.01))
    nodes = Nodes(population, torch.arange(2), samples, samples, samples, torch.full((2,), 0.01))
    params = nodes.train(nodes.initial_params(), 0)
    pull = torch.linspace(-0.1, 0.1, params.numel()).view_as(params)
    params = nodes.train(params, 1, part=nodes.layout.head, correction=pull, proximal=0.3)
    core, head = params[:, nodes.layout.core], params[:, nodes.layout.head]
    heads = torch.stack([head, -head], dim=1)
    return [params, nodes.test(params).loss, nodes.head_losses(core, heads, 0)]


def check_autoencoder_engine() -> bool:
    both = (outputs_of(path) for path in ("fused", "stacked"))
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*both, strict=True))


LAYER_CASES: dict[str, Callable[[], bool]] = {
    "autoencoder": lambda: (
        error(autoencoder, (1, 8, 8), SGD(0.9), objective=Reconstruction()) < 1e-5
    ),
    "engine-trains-an-autoencoder-as-stacked": check_autoencoder_engine,
    "transposed-convolutions": lambda: (
        error(transposed, (2, 6, 5), SGD(weight_decay=0.1)) < 1e-5
        and error(transposed, (2, 6, 5), Adam()) < 1e-4
    ),
    "enlarged-images-and-means": lambda: error(enlarged, (3, 3, 4)) < 1e-5,
    "sigmoids-and-norms-of-padded-channels": lambda: (
        error(lambda: sigmoids(nn.MaxPool2d(2)), (3, 7, 6)) < 1e-5
        and error(lambda: sigmoids(nn.AvgPool2d(2)), (3, 6, 7)) < 1e-5
    ),
    "layers-in-any-order": lambda: error(orders, (2, 17, 16)) < 1e-5,
    "layers-without-bias": lambda: error(without_bias, (2, 6, 5), SGD(0.9, 0.1)) < 1e-5,
    "parts-that-cut-a-layer": check_parts,
    "weight-gradients-in-parts": check_halves,
    "linear-layers-of-images-and-tables": lambda: (
        error(lambda: mlp(54), (3, 3, 6), SGD(0.9)) < 1e-5
        and error(lambda: mlp(11), (11,), Adam()) < 1e-4
        and error(lambda: mlp(11, 11), (11,), objective=Reconstruction()) < 1e-5
        and error(lambda: mlp(8), (1, 2, 4), objective=Regression()) < 1e-5
    ),
}
