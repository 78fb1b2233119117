"""Is every kernel right on this GPU? Each against a float64 reference on fresh random inputs.

    python benchmarks/check_kernels.py

Prints the relative error of each case and exits with 1 where one is too large: float32 must be
within 1e-5, tf32 within 5e-3 and bf16 within 3e-2. Then fast, generic and CPU paths on 10 steps in
float32, and two rounds from one CUDA graph: they differ from each other and equal the CPU's.
With TRITON_INTERPRET=1 the kernels run on the CPU instead: slow, and the paths are left out.
"""

from __future__ import annotations

import itertools
import sys

import torch
import torch.nn.functional as F
from check_layers import DEVICE, GEOMETRIES, LIMITS, Tally, check_layers, error, new
from pfl_cifar10 import build as pfl
from torch import Tensor, nn

from coterie.core import LocalWork, Nodes, Population
from coterie.core.draws import draw
from coterie.core.samples import Pool, Samples
from coterie.core.slots_gpu import sum_slots_on_gpu
from coterie.models import Shape, build_model
from coterie.training import TrainingSettings, make_engine, network, objectives, optimizers
from coterie.training.kernels import convolution, dense, loss, samples
from coterie.training.kernels.update import AdamSteps, Descent
from coterie.training.optimizers import Adam


def check_steps(precision: str, momentum: float) -> dict[str, float]:
    """Steps of SGD taken where the weight gradient is made, against the gradient itself."""
    rows, batch, shape = 3, 5, GEOMETRIES[1]
    x, dy = new(rows, batch, 16, 16, 32), new(rows, batch, 16, 16, 32)
    lr, own = torch.rand(rows, device=DEVICE), (new(rows, 5, 5, 32, 32), new(rows, 32))
    flat, dout = new(rows, batch, 1030), new(rows, batch, 10)
    dense_own = (new(rows, 1030, 10), new(rows, 1, 10))
    worst = {}
    for name, weights in (("convolution", own), ("dense", dense_own)):
        before = [part.double() for part in weights]
        last = tuple(torch.randn_like(part) for part in weights) if momentum else None
        kept = [part.double() for part in last] if last else [0, 0]
        descent = Descent(lr, 0.1, momentum, last)
        if name == "dense":
            dense.weight_step(flat, dout, weights, precision, descent)
            gradient = [torch.bmm(flat.double().mT, dout.double()), dout.double().sum(1, True)]
        else:
            dw, db = new(1, *own[0].shape), new(1, *own[1].shape)
            convolution.weight_gradient(x, dy, (dw, db), shape, "ieee")
            convolution.weight_gradient(x, dy, weights, shape, precision, descent)
            gradient = [dw[0].double(), db[0].double()]
        for part, got in enumerate(weights):
            rate = lr.double().view(-1, *[1] * (got.ndim - 1))
            step = rate * (momentum * kept[part] + gradient[part] + 0.1 * before[part])
            worst[f"{name} {('weight', 'bias')[part]}"] = error(got, before[part] - step)
    return worst


def check_adam() -> float:
    """Three steps, with gradients in parts."""
    rows, size = 3, 5003
    w, partial, lr = new(rows, size), new(4, rows, size), torch.rand(rows, device=DEVICE)
    steps = AdamSteps(Adam(weight_decay=0.1), w.device)
    means, right = [torch.zeros_like(w), torch.zeros_like(w)], w.double()
    slots, before = [part.double() for part in means], w.double()
    for number in (1, 2, 3):
        steps.begin()
        steps.change(w, partial, means, lr)
        gradient, count = partial.double().sum(0), torch.tensor(number, dtype=torch.float64)
        steps.rule.step(right, gradient, slots, count, lr.double()[:, None])
    return error(w - before, right - before)


def check_losses() -> dict[str, float]:
    """The gradient of every kind of loss."""
    rows, batch, size, ids = 3, 5, 1037, torch.randint(0, 9, (3, 5), device=DEVICE)
    labels, values = torch.randint(0, size, (9,), device=DEVICE), new(9, size)
    x = new(rows, batch, 17, 9, 4)
    flat, image = new(rows, batch, size), new(rows, batch, 17, 9, 4)
    planes = x[..., :3].permute(0, 1, 4, 2, 3).flatten(2)
    made = {
        "cross-entropy": (flat, labels[ids], loss.cross_entropy_gradient, (labels, ids)),
        "regression": (flat, values[ids], loss.squared_error_gradient, (values, ids)),
    }
    worst = {}
    for name, (out, wanted, kernel, extra) in made.items():
        dout = torch.full_like(out, torch.nan)
        kernel(out, *extra, dout)
        worst[name] = error(dout, loss_gradient(out, wanted) * rows)
    for name, out, wanted in (
        ("reconstruction (planes)", new(*planes.shape), planes),
        ("reconstruction (pixels)", image, x),
    ):
        dout = torch.full_like(out, torch.nan)
        loss.reconstruction_gradient(out, x, dout, 3)
        real = slice(None) if out.ndim == 3 else slice(0, 3)
        right = torch.zeros_like(out, dtype=torch.float64)
        right[..., real] = loss_gradient(out[..., real], wanted[..., real]) * rows
        worst[name] = error(dout, right)
    return worst


def loss_gradient(out: Tensor, wanted: Tensor) -> Tensor:
    """The gradient of the mean loss over all rows together."""
    out = out.double().requires_grad_()
    if wanted.dtype == torch.int64:
        total = F.cross_entropy(out.flatten(0, 1), wanted.flatten())
    else:
        total = F.mse_loss(out, wanted.double())
    return torch.autograd.grad(total, out)[0]


def check_turned() -> float:
    """Reading images of which some are stored once and shown turned."""
    images = torch.randint(0, 256, (40, 3, 17, 9), dtype=torch.uint8, device=DEVICE)
    turns = torch.stack([torch.arange(153), torch.arange(153).flip(0)]).to(DEVICE)
    stored, turn = (torch.arange(80, device=DEVICE) % n for n in (40, 2))
    pool = Pool(images, stored, (0.5,) * 3, (0.4,) * 3, stored, turn, turns)
    ids, x = torch.randint(0, 80, (6, 7), device=DEVICE), new(6, 7, 17, 9, 4)
    scale, offset = (part.flatten().float() for part in pool.affine)
    samples.gather(pool, ids, scale, offset, x)
    return error(x[..., :3], pool.read(ids, torch.float64).permute(0, 1, 3, 4, 2))


def check_table() -> float:
    """Reading rows of a table, which are not scaled."""
    table, ids = new(40, 301), torch.randint(0, 40, (6, 7), device=DEVICE)
    pool, x = Pool(table, ids[0], (0.0,), (1.0,)), new(6, 7, 1, 301, 1)
    samples.gather(pool, ids, torch.ones(1, device=DEVICE), torch.zeros(1, device=DEVICE), x)
    return error(x.flatten(2), table[ids].double())


def check_slots() -> dict[str, float]:
    """Sums of heard rows, with and without weights; a second call must give the same bits."""
    rows, heard = new(40, 90_001), torch.randint(0, 40, (70, 5), device=DEVICE)
    worst = {}
    for name, table in (("plain", None), ("weighted", torch.rand(70, 5, device=DEVICE).round())):
        first, second = (sum_slots_on_gpu(rows, heard, table) for _ in range(2))
        weights = torch.ones(70, 5) if table is None else table
        wanted = torch.einsum("md,mdp->mp", weights.double().to(DEVICE), rows.double()[heard])
        worst[name] = error(first, wanted)
        worst[f"{name}, again"] = float((first != second).sum())
    return worst


def check_draws() -> float:
    seed, node = torch.tensor([2**61 + 5, 7]), torch.tensor([3, 99])
    there = draw(seed.to(DEVICE), "check", 5, node.to(DEVICE), 1001).cpu()
    return float((there != draw(seed, "check", 5, node, 1001)).sum())


def mirror() -> nn.Module:
    """Reconstructs images, through a mean pool of odd sides."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(8 * 15 * 15, 32), nn.ReLU(),
        nn.Linear(32, 3 * 32 * 32), nn.Unflatten(1, (3, 32, 32)),
    )  # fmt: skip


SHAPE = Shape((3, 32, 32), 10)
# domains of clients: where a classifier chooses, rounding may decide
BRANCHED = {"name": "fedcg", "base": "lenet", "layers": ["conv*"], "by": "clients"}
MODELS = {
    "lenet": (build_model({"name": "lenet"}, SHAPE), "classification", "sgd"),
    "cnn": (build_model({"name": "cnn"}, SHAPE), "classification", "sgd"),
    "the network of pfl_cifar10": (lambda: pfl(SHAPE), "classification", "sgd"),
    "mlp": (build_model({"name": "mlp"}, SHAPE), "classification", "adam"),
    "a mirror": (mirror, "reconstruction", "sgd"),
    "autoencoder": (build_model({"name": "autoencoder"}, SHAPE), "reconstruction", "sgd"),
    "autoencoder, Adam": (
        build_model({"name": "autoencoder", "unit": True}, SHAPE),
        "reconstruction",
        "adam",
    ),
    "resnet8": (build_model({"name": "resnet8"}, SHAPE), "classification", "sgd"),
    "fedcg": (build_model(BRANCHED, SHAPE), "classification", "sgd"),
}
GENERIC = ("resnet8", "fedcg")  # no sequences of known layers


def ten_steps(
    model: str, path: str, device: str, t: int = 0, rows: int = 4, pulled: bool = False
) -> Tensor:
    """The change of 4 rows in round t, 10 steps in float32; earlier rounds are played before.

    Other numbers of rows are some of 16, so that a GPU pads them. Gradients may be `pulled`.
    """
    torch.manual_seed(0)
    build, objective, optimizer = MODELS[model]
    images = torch.randint(0, 256, (400, *SHAPE.sample), dtype=torch.uint8)
    pool = Pool(images, torch.arange(400) % 10, (0.5,) * 3, (0.5,) * 3)
    settings = TrainingSettings(
        objectives.build(objective),
        optimizers.build(optimizer),
        10,
        8,
        torch.device(device),
        torch.float32,
    )
    engine = make_engine(build, SHAPE.sample, settings, path=path)
    count = 4 if rows == 4 else 16
    start = torch.arange(count, device=device) * (400 // count)
    owned = Samples(
        pool.to(settings.device, settings.dtype),
        torch.arange(400, device=device),
        start,
        torch.full_like(start, 400 // count),
    )
    population = Population(count, (1,), engine, LocalWork(8, 10, None, 0.01))
    rates = torch.full((count,), 0.01)
    nodes = Nodes(population, torch.arange(count), owned, owned, owned, rates)
    nodes = nodes if rows == count else nodes[torch.arange(rows)]
    before = nodes.initial_params()
    pull = before.flip(1) if pulled else None
    spring = 0.1 if pulled else 0.0
    for earlier in range(t):  # makes and replays the graph, and must leave nothing behind
        nodes.train(before, earlier, correction=pull, proximal=spring)
    return (nodes.train(before, t, correction=pull, proximal=spring) - before).cpu()


def check_rest(report: Tally) -> None:
    for (precision, limit), momentum in itertools.product(LIMITS.items(), (0.0, 0.9)):
        for name, value in check_steps(precision, momentum).items():
            report(f"step inside, {name} {precision} momentum {momentum}", value, limit)
    report("three steps of Adam", check_adam(), 1e-5)
    for name, value in check_losses().items():
        report(f"gradient of {name}", value, 1e-5)
    for name, value in check_slots().items():
        report(f"sums of heard rows, {name}", value, 1e-5)
    report("images that are stored once and turned", check_turned(), 1e-5)
    report("rows of a table", check_table(), 0)
    report("draws that differ from the CPU's", check_draws(), 0)


def check_paths(report: Tally) -> None:
    for model in MODELS:
        cpu = ten_steps(model, "loop", "cpu").double()
        for path in ("stacked",) if model in GENERIC else ("stacked", "fused"):
            value = error(ten_steps(model, path, "cuda"), cpu)
            report(f"10 steps of {model}: {path} against CPU", value, 1e-2)
    for path in ("stacked", "fused"):
        value = error(
            ten_steps("cnn", path, "cuda", rows=9), ten_steps("cnn", "loop", "cpu", rows=9).double()
        )
        report(f"10 steps of 9 rows that are padded: {path} against CPU", value, 1e-2)
    cpu = ten_steps("lenet", "loop", "cpu", 1, pulled=True).double()
    for path in ("stacked", "fused"):
        value = error(ten_steps("lenet", path, "cuda", 1, pulled=True), cpu)
        report(f"10 steps with a correction and a spring: {path} against CPU", value, 5e-2)
    network.STEP_INSIDE = False
    value = error(ten_steps("cnn", "fused", "cuda"), ten_steps("cnn", "loop", "cpu").double())
    report("10 steps of cnn, taken in a pass of their own", value, 1e-2)
    network.STEP_INSIDE = True
    first, second = (ten_steps("lenet", "fused", "cuda", t) for t in (1, 2))
    report("two rounds from one graph are equal", float(torch.equal(first, second)), 0)
    cpu = ten_steps("lenet", "loop", "cpu", 2).double()
    report("the third round from a graph against CPU", error(second, cpu), 1e-2)


def main() -> None:
    report = Tally()
    check_layers(report)
    check_rest(report)
    if DEVICE == "cuda":
        check_paths(report)
    print(f"{report.failed} failed")
    sys.exit(report.failed > 0)


if __name__ == "__main__":
    main()
