"""Both engines against a literal loop over one module with torch's own optimizers."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core import LocalWork, Nodes
from coterie.core.engine import Work
from coterie.core.params import flat
from coterie.models.autoencoder import Autoencoder
from coterie.models.convolutional import SmallCNN
from coterie.models.registry import Shape
from coterie.training.objectives import Reconstruction, Regression
from coterie.training.optimizers import SGD, Adam
from coterie.training.stacked import StackedEngine, _Steps

from ..world import PATHS, World, mlp, normed


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


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "Classification": lambda out, x, y: F.cross_entropy(out, y),
    "Regression": lambda out, x, y: F.mse_loss(out, y),
    "Reconstruction": lambda out, x, y: F.mse_loss(out, x),
}
SHAKY, DECAY = SGD(momentum=0.9, weight_decay=0.01), SGD(weight_decay=0.1)


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


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_an_engine_does_what_torch_optim_does_to_one_module(name: str, path: str) -> None:
    case = replace(CASES[name], world=replace(CASES[name].world, path=path))
    nodes = case.world.nodes()
    params = nodes.initial_params()
    after = ask(nodes, params, case)
    assert not torch.allclose(after, params)
    assert torch.allclose(after, literal(nodes, params, case), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_the_engines_agree(name: str) -> None:
    loop, stacked = (replace(CASES[name].world, path=path).nodes() for path in PATHS)
    params = loop.initial_params()
    assert torch.equal(params, stacked.initial_params())
    after = ask(loop, params, CASES[name])
    assert torch.allclose(after, ask(stacked, params, CASES[name]), rtol=0, atol=1e-10)
    assert torch.allclose(loop.loss(after, 0), stacked.loss(after, 0), rtol=0, atol=1e-10)
    assert torch.allclose(
        loop.loss(after, 0, samples=3), stacked.loss(after, 0, samples=3), rtol=0, atol=1e-10
    )
    one, other = loop.test(after), stacked.test(after)
    assert torch.allclose(one.loss, other.loss, rtol=0, atol=1e-10)
    assert (one.confusion is None) == (other.confusion is None)
    if one.confusion is not None and other.confusion is not None:
        assert torch.equal(one.confusion, other.confusion)


def test_the_engines_agree_in_single_precision() -> None:
    world = World(build=cnn, shape=(1, 4, 4), dtype=torch.float32)
    loop, stacked = (replace(world, path=path).nodes() for path in PATHS)
    params = loop.initial_params()
    assert params.dtype == torch.float32
    after = loop.train(params, 0)
    assert after.dtype == torch.float32
    assert torch.allclose(after, stacked.train(params, 0), atol=1e-5)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_the_loop_gives_the_same_rows_on_any_number_of_threads(threads: int) -> None:
    nodes = replace(NORMED, path="loop", counts=(10, 0, 7, 3, 9)).nodes()
    params = nodes.initial_params()
    after, losses = nodes.train(params, 0), nodes.loss(params, 0)
    torch.set_num_threads(threads)
    assert torch.allclose(nodes.train(params, 0), after, rtol=0, atol=1e-14)
    assert torch.allclose(nodes.loss(params, 0), losses, rtol=0, atol=1e-14, equal_nan=True)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("path", PATHS)
def test_buffers_move_with_the_data_and_never_with_the_optimizer(path: str) -> None:
    world = replace(NORMED, path=path)
    nodes = world.nodes()
    params = nodes.initial_params()
    buffers = ~nodes.layout.trained()
    after = nodes.train(params, 0, steps=1)
    harsh = replace(world, optimizer=SGD(0.9, 100.0)).nodes()
    pulled = harsh.train(params, 0, steps=1, proximal=9.0, correction=torch.ones_like(params))
    assert not torch.allclose(after[:, buffers], params[:, buffers])
    assert torch.allclose(after[:, buffers], pulled[:, buffers], atol=1e-14)
    assert not torch.allclose(after[:, ~buffers], pulled[:, ~buffers])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("optimizer", [SHAKY, Adam(weight_decay=0.1)])
@pytest.mark.parametrize("part", ["core", "head"])
def test_the_part_that_does_not_train_stays_bit_for_bit(
    part: str, optimizer: Any, path: str
) -> None:
    nodes = replace(HEADED, path=path, optimizer=optimizer).nodes()
    params, moving = nodes.initial_params(), getattr(nodes.layout, part)
    correction = correction_like(params)
    after = nodes.train(params, 0, part=moving, correction=correction, proximal=0.1)
    frozen = ~nodes.layout.trained(moving)
    assert torch.equal(after[:, frozen], params[:, frozen])
    assert (after[:, moving] != params[:, moving]).any(1).all()


@pytest.mark.parametrize("path", PATHS)
def test_entries_outside_a_mask_stay_bit_for_bit(path: str) -> None:
    nodes = replace(NORMED, path=path).nodes()
    params = nodes.initial_params()
    mask = mask_like(params)
    after = nodes.train(params, 0, part=mask)
    assert torch.equal(after[~mask], params[~mask])
    assert ((after != params) & mask).any(1).all()
    everything = nodes.train(params, 0, part=torch.ones_like(mask))
    assert torch.allclose(everything, nodes.train(params, 0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("build", [mlp, normed])
def test_a_gradient_is_that_of_one_batch(build: Callable[[], nn.Module], path: str) -> None:
    nodes = World(path=path, build=build, counts=(10, 0, 8, 3, 9)).nodes()
    params, batch = nodes.initial_params(), nodes.population.work.batch
    found = nodes.gradient(params, 2, "here")
    ids = nodes.train_data.shuffled(nodes.seed, nodes.ids, 2, "here", batch)
    for row, count in enumerate(nodes.samples.tolist()):
        module = build().double().eval()
        module.load_state_dict(nodes.layout.unflatten(params[row]), strict=False)
        x, y = nodes.train_data.pool.inputs[ids[row]], nodes.train_data.pool.targets[ids[row]]
        F.cross_entropy(module(x), y).backward()
        for name, part in nodes.layout.unflatten(found[row]).items():
            parameter = dict(module.named_parameters()).get(name)
            expected = 0 * part if parameter is None or not count else parameter.grad
            assert torch.allclose(part, expected, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("path", PATHS)
def test_the_running_statistics_of_a_frozen_core_stay(path: str) -> None:
    nodes = replace(NORMED, path=path).nodes()
    params = nodes.initial_params()
    after = nodes.train(params, 0, part=nodes.layout.head)
    assert torch.equal(after[:, nodes.layout.core], params[:, nodes.layout.core])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("build", [mlp, normed])
def test_rows_without_data_stand_still(build: Callable[[], nn.Module], path: str) -> None:
    nodes = World(path=path, build=build, counts=(10, 0, 8, 0, 9), optimizer=SHAKY).nodes()
    params = nodes.initial_params()
    for asked in ({}, {"steps": 4}, {"epochs": 1.0}):
        after = nodes.train(params, 0, **asked)
        assert torch.equal(after[[1, 3]], params[[1, 3]])
        assert (after[[0, 2, 4]] != params[[0, 2, 4]]).any(1).all()


@pytest.mark.parametrize("path", PATHS)
def test_where_nobody_has_data_all_stand_still(path: str) -> None:
    nodes = World(path=path, counts=(0,) * 5).nodes()
    params = nodes.initial_params()
    assert torch.equal(nodes.train(params, 0), params)
    assert nodes.loss(params, 0).isnan().all()
    assert nodes.test(params).loss.isnan().all()


@pytest.mark.parametrize("path", PATHS)
def test_a_learning_rate_of_zero_freezes_the_parameters(path: str) -> None:
    nodes = World(path=path).nodes()
    nodes = replace(nodes, lr=torch.tensor([0.0, 0.1, 0.0, 0.1, 0.1], dtype=torch.float64))
    params = nodes.initial_params()
    assert torch.equal(nodes.train(params, 0)[[0, 2]], params[[0, 2]])


def test_the_engines_agree_about_buffers_at_a_learning_rate_of_zero() -> None:
    loop, stacked = (
        replace(NORMED, path=path, work=LocalWork(4, 3, None, 0.0)).nodes() for path in PATHS
    )
    params = loop.initial_params()
    assert torch.allclose(loop.train(params, 0), stacked.train(params, 0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["ragged epochs", "batch norm with pulls", "the head alone"])
@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_small_chunks_give_the_same_result(name: str, chunk: int) -> None:
    case = CASES[name]
    whole = case.world.nodes()
    engine = whole.population.engine
    assert isinstance(engine, StackedEngine)
    small = replace(
        whole,
        population=replace(
            whole.population, engine=replace(engine, chunk=chunk, samples_at_once=3)
        ),
    )
    params = whole.initial_params()
    after = ask(whole, params, case)
    assert torch.allclose(ask(small, params, case), after, rtol=0, atol=1e-12)
    assert torch.allclose(small.loss(after, 0), whole.loss(after, 0), atol=1e-12)
    assert torch.equal(small.test(after).confusion, whole.test(after).confusion)
    assert torch.allclose(small.test(after).loss, whole.test(after).loss, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_an_anchor_may_be_another_model(path: str) -> None:
    nodes = World(path=path).nodes()
    params, anchor = nodes.initial_params(), nodes.initial_params("anchor")
    order = nodes.train_data.shuffled(nodes.seed, nodes.ids, 0, "train", 4)
    work = Work(nodes.train_data, order, torch.ones(5, dtype=torch.int64), 4, nodes.lr)
    plain = nodes.population.engine.train(params, work)
    pulled = nodes.population.engine.train(params, replace(work, proximal=0.5, anchor=anchor))
    assert torch.allclose(plain - pulled, 0.1 * 0.5 * (params - anchor), atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_one_call_does_not_remember_the_last(path: str) -> None:
    nodes = World(path=path, build=normed, optimizer=SHAKY).nodes()
    params = nodes.initial_params()
    first = nodes.train(params, 0)
    nodes.train(first, 1)
    nodes.loss(first, 0)
    assert torch.allclose(nodes.train(params, 0), first, rtol=0, atol=1e-14)


@pytest.mark.parametrize("optimizer", [SHAKY, Adam()])
def test_steps_that_are_kept_for_the_next_call_begin_afresh(optimizer: Any) -> None:
    nodes = World(optimizer=optimizer).nodes()
    params = nodes.initial_params()
    order = nodes.train_data.shuffled(nodes.seed, nodes.ids, 0, "train", 4)
    work = Work(nodes.train_data, order, torch.ones(5, dtype=torch.int64), 4, nodes.lr)
    steps = _Steps(nodes.population.engine, 5, work)  # as on a GPU, where they are replayed
    for _ in range(2):
        steps.begin(params, work)
        steps.pace(work.lr, work.steps > 0)
        steps.advance(order)
        assert torch.allclose(steps.rows, nodes.train(params, 0, steps=1), rtol=0, atol=1e-14)


class Shortcut(nn.Module):
    """Has a layer that the forward pass never uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(10, 3), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


@pytest.mark.parametrize(
    "path",
    [
        "loop",
        "stacked",
    ],
)
def test_a_layer_that_is_never_used_stays_as_it_is(path: str) -> None:
    nodes = World(path=path, build=Shortcut).nodes()
    params = nodes.initial_params()
    after = nodes.layout.unflatten(nodes.train(params, 0))
    before = nodes.layout.unflatten(params)
    assert torch.equal(after["spare.weight"], before["spare.weight"])
    assert not torch.equal(after["used.weight"], before["used.weight"])


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 10), nn.Linear(10, 10)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def test_the_engines_agree_about_tied_weights() -> None:
    loop, stacked = (World(path=path, build=Tied).nodes() for path in PATHS)
    params = loop.initial_params()
    assert torch.allclose(loop.train(params, 0), stacked.train(params, 0), rtol=0, atol=1e-10)


def half_frozen() -> nn.Module:
    module = mlp()
    module[0].requires_grad_(False)
    return module


@pytest.mark.parametrize("path", PATHS)
def test_a_layer_that_its_author_froze_stays(path: str) -> None:
    nodes = World(path=path, build=half_frozen).nodes()
    params = nodes.initial_params()
    after = nodes.layout.unflatten(nodes.train(params, 0))
    assert torch.equal(after["0.weight"], nodes.layout.unflatten(params)["0.weight"])


@pytest.mark.parametrize(
    "path",
    [
        "loop",
        "stacked",
    ],
)
def test_training_an_empty_part_changes_nothing(path: str) -> None:
    nodes = World(path=path, head=()).nodes()
    params = nodes.initial_params()
    assert torch.equal(nodes.train(params, 0, part=nodes.layout.head), params)


class OneValue(nn.Module):
    """Gives one number a sample, without an axis for it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).sum(1)


@pytest.mark.parametrize("path", PATHS)
def test_a_regression_may_give_one_number_a_sample(path: str) -> None:
    nodes = World(path=path, build=OneValue, objective=Regression(), classes=0).nodes()
    pool = replace(nodes.train_data.pool, targets=nodes.train_data.pool.targets[:, 0])
    nodes = replace(nodes, train_data=replace(nodes.train_data, pool=pool))
    assert nodes.train(nodes.initial_params(), 0).isfinite().all()


@pytest.mark.parametrize("path", PATHS)
def test_the_module_that_was_built_keeps_its_values(path: str) -> None:
    built: list[nn.Module] = []

    def build() -> nn.Module:
        built.append(normed())
        return built[-1]

    nodes = World(path=path, build=build).nodes()
    before = copy.deepcopy(built[0].state_dict())
    nodes.train(nodes.initial_params(), 0)
    after = built[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
