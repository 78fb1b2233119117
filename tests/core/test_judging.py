import pytest
import torch

from coterie.core.judging import Judge, consensus_distance, distinct

from ..world import PATHS, World


def counted(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the engine really scored, call by call."""
    calls: list[int] = []
    real = judge.engine.scores

    def scores(params, samples):  # type: ignore[no-untyped-def]
        calls.append(len(params))
        return real(params, samples)

    monkeypatch.setattr(judge.engine, "scores", scores)
    return calls


@pytest.mark.parametrize("path", PATHS)
def test_rows_that_come_again_are_scored_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = World(n=6, path=path).nodes()
    shared = nodes.test_data[torch.zeros(6, dtype=torch.int64)]
    models = nodes.initial_params()
    expected = nodes.population.engine.scores(models[[0, 1, 0, 2, 0, 1]], shared)
    judge = Judge(nodes.population.engine)
    calls = counted(judge, monkeypatch)
    first = judge.test(models[[0, 1, 0]], shared[torch.arange(3)])
    second = judge.test(models[[2, 0, 1]], shared[torch.arange(3)])
    assert calls == [2, 1]
    assert torch.allclose(torch.cat([first.loss, second.loss]), expected.loss)
    assert first.confusion is not None and second.confusion is not None
    assert expected.confusion is not None
    assert torch.equal(torch.cat([first.confusion, second.confusion]), expected.confusion)


def test_one_model_for_all_is_scored_once_for_each_test_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = World(n=6).nodes()
    model, shared = nodes.initial_params()[:1], nodes.test_data[torch.tensor([0, 1, 0, 1, 1, 0])]
    judge = Judge(nodes.population.engine)
    calls = counted(judge, monkeypatch)
    scores = [judge.test(model.expand(6, -1), shared), judge.test(model.repeat(6, 1), shared)]
    assert calls[0] == 2
    assert torch.allclose(scores[0].loss, scores[1].loss)
    assert torch.allclose(scores[0].loss[:2], judge.engine.scores(model[[0, 0]], shared[:2]).loss)


def test_models_that_differ_a_little_are_not_taken_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = World(n=2).nodes()
    shared = nodes.test_data[torch.zeros(1, dtype=torch.int64)]
    model = nodes.initial_params()[:1]
    other = model.clone()
    other[0, 0] += 1e-12
    judge = Judge(nodes.population.engine)
    calls = counted(judge, monkeypatch)
    judge.test(model, shared)
    judge.test(other, shared)
    assert calls == [1, 1]


def test_only_so_many_models_are_remembered() -> None:
    nodes = World(n=6).nodes()
    judge = Judge(nodes.population.engine)
    judge.room = 2
    for _ in range(2):
        judge.test(nodes.initial_params(), nodes.test_data)
        assert len(judge.seen) == 2


def test_a_model_that_diverged_is_scored_for_itself() -> None:
    nodes = World(n=3).nodes()
    models = nodes.initial_params()
    models[1] = torch.nan
    scores = nodes.test(models)
    assert scores.loss.isnan().tolist() == [False, True, False]


def test_nobody_is_tested_without_rows() -> None:
    nodes = World(n=3).nodes()[torch.arange(0)]
    assert len(nodes.test(nodes.initial_params()).loss) == 0


def test_marks_tell_rows_with_other_samples_apart() -> None:
    nodes = World(n=4).nodes()
    models = nodes.initial_params()[[0, 0, 0, 1]]
    samples = nodes.test_data[torch.tensor([0, 0, 1, 0])]
    first, which, marks = distinct(models, samples)
    assert len(first) == len(marks) == 3
    assert which[0] == which[1] and len(set(which.tolist())) == 3


def test_nodes_that_agree_are_at_distance_0() -> None:
    assert consensus_distance(torch.ones(6, 4), 3) == [0, 0]


def test_the_distance_is_that_of_every_replica_alone() -> None:
    first = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    second = torch.tensor([[0.0, 4.0], [0.0, -4.0]])
    assert consensus_distance(torch.cat([first, second]), 2) == pytest.approx([1, 4])


def test_many_nodes_are_measured_some_at_a_time() -> None:
    models = torch.randn(130, 5, dtype=torch.float64)
    expected = (models - models.mean(0)).norm(dim=1).square().mean().sqrt()
    assert consensus_distance(models, 130) == pytest.approx([float(expected)])
