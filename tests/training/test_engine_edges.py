"""What must not move, does not: parts, masks, rows without data, frozen and unused layers."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie.core import LocalWork
from coterie.core.engine import Work
from coterie.training.objectives import Regression
from coterie.training.optimizers import Adam
from coterie.training.stacked import _Steps
from tests.training.engine_cases import HEADED, NORMED, SHAKY, correction_like, mask_like

from ..world import PATHS, World, mlp, normed


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
