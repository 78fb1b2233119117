"""Both engines do to every row what torch.optim does to one module."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from coterie.core.engine import Work
from coterie.training.optimizers import SGD
from coterie.training.stacked import StackedEngine
from tests.training.engine_cases import CASES, NORMED, ask, cnn, literal

from ..world import PATHS, World, mlp, normed


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
