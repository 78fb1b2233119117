"""The cases of test_kernels.py; run as a module with TRITON_INTERPRET=1, prints a line a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import torch
from torch import nn

from coterie.core import LocalWork, Nodes, Population
from coterie.core.draws import draw, purpose_word
from coterie.core.draws_gpu import draw_on_gpu
from coterie.core.samples import Pool, Samples
from coterie.core.slots_gpu import sum_slots_on_gpu
from coterie.models import Shape, build_model
from coterie.training import TrainingSettings, make_engine, network
from coterie.training.fused import FusedEngine
from coterie.training.kernels.samples import gather
from coterie.training.objectives import Classification, Objective, Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam, Optimizer

from .convolve_cases import CONVOLVE_CASES
from .kernel_reference import CLASSES, error
from .layer_cases import LAYER_CASES


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


def pooled(pool: nn.Module, relu: bool = True, size: tuple[int, int] = (7, 5)) -> nn.Module:
    """A norm over a height and a width that the pool does not divide."""
    between = [nn.ReLU()] if relu else []
    features = 4 * (size[0] // 2) * (size[1] // 2)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        *between,
        pool,
        nn.Flatten(),
        nn.Linear(features, CLASSES),
    )


def mean_pools() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.AvgPool2d(2), nn.Conv2d(6, 5, 2), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(5 * 2, CLASSES),
    )  # fmt: skip


def bottleneck() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(6 * 6, 7), nn.ReLU(), nn.Linear(7, 2 * 7 * 9), nn.Unflatten(1, (2, 7, 9)),
    )  # fmt: skip


def painter() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 3, padding=1))


def make_nodes(path: str, optimizer: Optimizer | None = None) -> Nodes:
    torch.manual_seed(1)
    images = torch.randint(0, 256, (100, 1, 8, 8), dtype=torch.uint8)
    pool = Pool(images, torch.arange(100) % CLASSES, (0.5,), (0.5,))
    cpu = torch.device("cpu")
    settings = TrainingSettings(
        Classification(), optimizer or SGD(), CLASSES, 2, cpu, torch.float32
    )
    engine = make_engine(small(), (1, 8, 8), settings, path=path)
    count = torch.tensor([5, 2, 0, 3])
    samples = Samples(pool, torch.arange(100), torch.arange(4) * 20, count)
    population = Population(4, (1,), engine, LocalWork(2, 2, None, 0.1))
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
        nodes.loss(params, 0, samples=4),
        nodes.head_losses(core, heads, 0, samples=4),
        nodes.head_losses(core, heads, 0),
        scores.loss,
        scores.confusion,
    ]


def check_engine() -> bool:
    pairs = zip(engine_outputs("fused"), engine_outputs("stacked"), strict=True)
    return all(torch.allclose(a, b, atol=1e-5, equal_nan=True) for a, b in pairs)


def check_pulls() -> bool:
    """A correction, a spring and both are added to gradients as without the kernels."""
    right = True
    for optimizer in (SGD(weight_decay=0.1), SGD(momentum=0.5)):
        found: list[list[torch.Tensor]] = []
        for path in ("fused", "stacked"):
            nodes = make_nodes(path, optimizer)
            start = nodes.initial_params()
            pull = torch.linspace(-0.1, 0.1, start.numel()).view_as(start)
            params = nodes.train(start, 0, correction=pull)
            params = nodes.train(params, 1, steps=torch.tensor([2, 1, 0, 2]), proximal=0.5)
            found.append([params, nodes.train(params, 2, correction=-pull, proximal=0.3)])
            assert path == "stacked" or isinstance(nodes.population.engine, FusedEngine)
        right &= all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))
    return right


def check_error_engine(build: Callable[[], nn.Module], objective: Objective) -> bool:
    """Train and score without classes, through the kernels and through vmap."""
    torch.manual_seed(2)
    images = torch.randint(0, 256, (8, 3, 6, 5), dtype=torch.uint8)
    pool = Pool(images, torch.randn(8, CLASSES), (0.5,) * 3, (0.5,) * 3)
    settings = TrainingSettings(objective, SGD(), 0, 2, torch.device("cpu"), torch.float32)
    samples = Samples(pool, torch.arange(8), torch.tensor([0, 5]), torch.tensor([5, 3]))
    found = []
    for path in ("fused", "stacked"):
        engine = make_engine(build, (3, 6, 5), settings, path=path)
        assert type(engine).__name__ == f"{path.capitalize()}Engine"
        population = Population(2, (1,), engine, LocalWork(2, 2, None, 0.1))
        nodes = Nodes(population, torch.arange(2), samples, samples, samples, torch.full((2,), 0.1))
        params = nodes.train(nodes.initial_params(), 0)
        scores = nodes.test(params)
        assert scores.confusion is None
        found.append([params, nodes.loss(params, 0), scores.loss])
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))


def check_buckets() -> bool:
    """Different numbers of rows train and are scored by one capture, as without padding."""
    torch.manual_seed(3)
    pool = Pool(
        torch.randint(0, 256, (40, 1, 4, 4), dtype=torch.uint8),
        torch.arange(40) % 5,
        (0.5,),
        (0.5,),
    )
    settings = TrainingSettings(
        Classification(), SGD(0.5), CLASSES, 2, torch.device("cpu"), torch.float32
    )
    samples = Samples(pool, torch.arange(40), torch.arange(11) * 3, torch.arange(11) % 2 + 1)
    engines = [
        make_engine(lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, CLASSES)),
                    (1, 4, 4), settings, ("2",), path)
        for path in ("fused", "stacked")
    ]  # fmt: skip
    fused = engines[0]
    assert isinstance(fused, FusedEngine)
    found: list[list[torch.Tensor]] = [[], []]
    for rows in (9, 10):
        for engine, results in zip(engines, found, strict=True):
            population = Population(11, (1,), engine, LocalWork(2, 1, None, 0.1))
            data = (samples,) * 3
            nodes = Nodes(population, torch.arange(11), *data, torch.full((11,), 0.1))
            some = nodes[torch.arange(rows)]
            params = some.train(some.initial_params(), 0)
            core, head = params[:, nodes.layout.core], params[:, nodes.layout.head]
            heads = torch.stack([head, -head], dim=1)
            scores = some.test(params)
            assert scores.confusion is not None
            results += [params, some.loss(params, 0), some.head_losses(core, heads, 0)]
            results += [scores.loss, scores.confusion]
    sizes = {key[0] for key in [*fused.trainers, *fused.scorers]}
    assert sizes == {10}, sizes
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))


def in_source_order(
    rows: torch.Tensor, heard: torch.Tensor, table: torch.Tensor | None
) -> torch.Tensor:
    """One addition after the other, in the precision of the rows."""
    total = torch.zeros(len(heard), *rows.shape[1:], dtype=rows.dtype)
    for row, slots in enumerate(heard.tolist()):
        for slot, source in enumerate(slots):
            weight = 1 if table is None else table[row, slot]
            total[row] += rows[source] * weight if weight != 0 else 0
    return total


def check_slots() -> bool:
    """Sums of heard rows, bit by bit; a row that diverged reaches only those who heard it."""
    wide = torch.randn(5, 3, 700)
    wide[4, 1, 7] = torch.nan
    heard = torch.randint(0, 4, (6, 3))
    heard[2, 1] = 4
    table = torch.rand(6, 3)
    table[0], table[3, 2] = 0, 0
    heard[3, 2] = 4
    right = True
    for rows in (wide, wide.double(), wide[:, 0, 3:500], wide[:, :, 5], wide[:, 1, 7]):
        for weights in (None, table.to(rows.dtype)):
            got = sum_slots_on_gpu(rows, heard, weights)
            wanted = in_source_order(rows, heard, weights)
            right &= torch.equal(got.nan_to_num(7), wanted.nan_to_num(7))
    nobody = sum_slots_on_gpu(wide[:0], heard[:, :0], None)
    return right and nobody.shape == (6, 3, 700) and not nobody.any()


def check_turned() -> bool:
    """Images read by the kernel are those that the pool reads."""
    images = torch.randint(0, 256, (4, 3, 5, 7), dtype=torch.uint8)
    turns = torch.stack([torch.arange(35), torch.arange(35).flip(0), torch.randperm(35)])
    stored, turn = torch.arange(9) % 4, torch.arange(9) % 3
    whole = Pool(images, torch.zeros(9), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), stored, turn, turns)
    right = True
    for pool in (whole, replace(whole, turn=None, turns=None), replace(whole, stored=None)):
        ids = torch.randint(0, 4 if pool.stored is None else 9, (2, 3))
        x = torch.full((2, 3, 5, 7, 4), torch.nan)
        scale, offset = (part.flatten().float() for part in pool.affine)
        gather(pool, ids, scale, offset, x)
        wanted = pool.read(ids, torch.float32).permute(0, 1, 3, 4, 2)
        right &= torch.allclose(x[..., :3], wanted, atol=1e-6) and not x[..., 3].any()
    return right


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


def apart(check: Callable[[], float]) -> float:
    """The error with steps taken in a pass of their own, not where weight gradients are made."""
    with mock.patch.object(network, "STEP_INSIDE", False):
        return check()


CASES: dict[str, Callable[[], bool]] = {
    "draws": check_draws,
    "sums-of-heard-rows": check_slots,
    "turned-images": check_turned,
    "norm-relu-pool": lambda: error(small(), (1, 8, 8)) < 1e-5,
    "momentum-decay": lambda: (
        error(small(16, 3), (3, 8, 8), SGD(momentum=0.9, weight_decay=0.01)) < 1e-5
    ),
    "strides-odd-sizes-two-linear-layers": lambda: error(odd, (2, 13, 13)) < 1e-5,
    "adam": lambda: error(small(), (1, 8, 8), Adam()) < 1e-4,
    "cnn-of-ppdl": lambda: (
        error(build_model({"name": "cnn"}, Shape((1, 12, 12), CLASSES)), (1, 12, 12), Adam()) < 1e-4
    ),
    "head-only": lambda: error(small(), (1, 8, 8), part={"fc.weight", "fc.bias"}) < 1e-5,
    "core-layer-only": lambda: (
        error(
            small(),
            (1, 8, 8),
            part={"conv2.weight", "conv2.bias", "norm2.weight", "norm2.bias"},
        )
        < 1e-5
    ),
    "norm-before-a-max-pool-of-odd-sides": lambda: (
        error(lambda: pooled(nn.MaxPool2d(2)), (1, 7, 5)) < 1e-5
    ),
    "norm-before-a-mean-pool-of-odd-sides": lambda: (
        error(lambda: pooled(nn.AvgPool2d(2)), (1, 7, 5)) < 1e-5
        and error(lambda: pooled(nn.AvgPool2d(2), False, (5, 6)), (1, 5, 6)) < 1e-5
    ),
    "mean-pools-without-norm": lambda: error(mean_pools, (2, 13, 9)) < 1e-5,
    "regression": lambda: error(mean_pools, (2, 13, 9), objective=Regression()) < 1e-5,
    "reconstruction-by-a-linear-layer": lambda: (
        error(bottleneck, (2, 7, 9), objective=Reconstruction()) < 1e-5
    ),
    "reconstruction-by-a-convolution": lambda: (
        error(painter, (3, 6, 5), SGD(0.9), objective=Reconstruction()) < 1e-5
    ),
    "engine-reconstructs-as-stacked": lambda: check_error_engine(painter, Reconstruction()),
    "engine-regresses-as-stacked": lambda: check_error_engine(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, CLASSES)
        ),
        Regression(),
    ),
    "steps-in-a-pass-of-their-own": lambda: (
        apart(lambda: error(odd, (2, 13, 13))) < 1e-5
        and apart(lambda: error(small(), (1, 8, 8), SGD(0.9, 0.01))) < 1e-5
        and apart(lambda: error(small(), (1, 8, 8), Adam())) < 1e-4
    ),
    "steps-apart-for-a-part": lambda: (
        apart(lambda: error(small(), (1, 8, 8), SGD(0.5), {"fc.weight", "fc.bias"})) < 1e-5
        and apart(lambda: error(odd, (2, 13, 13), part={"3.weight", "3.bias"})) < 1e-5
    ),
    "corrections-and-springs": check_pulls,
    "different-rows-share-a-capture": check_buckets,
    "tf32-runs": lambda: error(small(), (1, 8, 8), precision="tf32") < 2e-2,
    "engine-agrees-with-stacked": check_engine,
    **LAYER_CASES,
    **CONVOLVE_CASES,
}


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, check in CASES.items():
        print("ok" if check() else "FAIL", name, flush=True)  # noqa: T201
