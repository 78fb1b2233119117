from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from coterie.core import LocalWork, Nodes
from coterie.core.graphs import Full, Ring, regular
from coterie.training.objectives import Regression

from ..world import PATHS, World, mlp


@pytest.fixture(params=PATHS)
def nodes(request: pytest.FixtureRequest) -> Nodes:
    return World(path=request.param, counts=(10, 4, 7, 1, 9)).nodes()


def literal_loss(nodes: Nodes, params: torch.Tensor, row: int, ids: torch.Tensor) -> torch.Tensor:
    module = mlp().double()
    module.load_state_dict(nodes.layout.unflatten(params[row]))
    pool = nodes.train_data.pool
    with torch.no_grad():
        return F.cross_entropy(module(pool.inputs[ids]), pool.targets[ids])


def test_the_loss_is_the_mean_over_all_own_samples(nodes: Nodes) -> None:
    params = nodes.initial_params()
    ids, real = nodes.train_data.all()
    expected = [literal_loss(nodes, params, row, ids[row][real[row]]) for row in range(5)]
    assert torch.allclose(nodes.loss(params, 0), torch.stack(expected), atol=1e-12)


def test_a_sampled_loss_sees_that_many_distinct_own_samples(nodes: Nodes) -> None:
    params = nodes.initial_params()
    ids = nodes.train_data.shuffled(nodes.seed, nodes.ids, 3, "loss", 5)
    owned = nodes.samples.clamp(max=5)
    expected = [literal_loss(nodes, params, row, ids[row, : owned[row]]) for row in range(5)]
    assert torch.allclose(nodes.loss(params, 3, samples=5), torch.stack(expected), atol=1e-12)


def test_a_sampled_loss_of_everything_is_the_whole_loss(nodes: Nodes) -> None:
    params = nodes.initial_params()
    assert torch.allclose(nodes.loss(params, 0, samples=50), nodes.loss(params, 0), atol=1e-12)
    assert torch.equal(nodes.loss(params, 0, samples=1 << 50), nodes.loss(params, 0, samples=50))


def test_who_owns_no_more_samples_than_asked_has_equal_losses_for_equal_models(
    nodes: Nodes,
) -> None:
    """Not up to rounding, which would decide between heads that are equal, but to the bit."""
    params = nodes.initial_params()
    one, other = (nodes.loss(params, 0, stream=name, samples=7) for name in ("one", "other"))
    assert (one == other).tolist() == [False, True, True, True, False]


def test_sampled_losses_follow_round_and_stream(nodes: Nodes) -> None:
    params = nodes.initial_params()
    first = nodes.loss(params, 0, samples=3)
    assert torch.equal(first, nodes.loss(params, 0, samples=3))
    assert not torch.equal(first, nodes.loss(params, 1, samples=3))
    assert not torch.equal(first, nodes.loss(params, 0, stream="other", samples=3))


def test_a_node_without_samples_has_no_loss() -> None:
    for path in PATHS:
        nodes = World(n=3, path=path, counts=(4, 0, 4)).nodes()
        params = nodes.initial_params()
        assert nodes.loss(params, 0).isnan().tolist() == [False, True, False]
        assert nodes.loss(params, 0, samples=2).isnan().tolist() == [False, True, False]
        assert nodes.accuracy(params).isnan().tolist() == [False, True, False]


def test_no_rows_have_no_losses_and_no_scores() -> None:
    for path in PATHS:
        nodes = World(path=path).nodes()[torch.arange(0)]
        params = nodes.initial_params()
        assert params.shape == (0, nodes.layout.size)
        assert nodes.train(params, 0).shape == params.shape
        assert nodes.loss(params, 0).shape == (0,)
        assert nodes.loss(params, 0, samples=3).shape == (0,)
        assert nodes.accuracy(params).shape == (0,)
        assert nodes.draw("p", 0, 3).shape == (0, 3)


def test_steps_and_epochs_say_how_long_a_node_trains() -> None:
    nodes = World(counts=(10, 4, 7, 1, 9)).nodes()
    assert nodes.steps(None, None).tolist() == [3] * 5
    assert nodes.steps(2, None).tolist() == [2] * 5
    assert nodes.steps(0, None).tolist() == [0] * 5
    assert nodes.steps(None, 2.0).tolist() == [5, 2, 3, 1, 4]  # batches of 4; at least one
    assert nodes.steps(None, 0.5).tolist() == [1, 1, 1, 1, 1]


def test_work_in_epochs_holds_unless_a_call_asks_for_steps() -> None:
    nodes = World(counts=(10, 4, 7, 0, 9), work=LocalWork(batch=2, epochs=1)).nodes()
    assert nodes.steps(None, None).tolist() == [5, 2, 3, 0, 4]
    assert nodes.steps(3, None).tolist() == [3, 3, 3, 0, 3]


def test_no_epochs_are_no_steps() -> None:
    assert World().nodes().steps(None, 0).tolist() == [0] * 5


def test_an_epoch_is_that_many_steps(nodes: Nodes) -> None:
    params = nodes.initial_params()
    by_epochs = nodes.train(params, 0, epochs=2)
    for row, steps in enumerate([5, 2, 3, 1, 4]):
        pick = torch.tensor([row])
        alone = nodes[pick].train(params[pick], 0, steps=steps)
        assert torch.allclose(by_epochs[row], alone[0], atol=1e-12)


def test_zero_steps_change_nothing(nodes: Nodes) -> None:
    params = nodes.initial_params()
    assert torch.equal(nodes.train(params, 0, steps=0), params)


def test_training_leaves_the_rows_it_was_given(nodes: Nodes) -> None:
    params = nodes.initial_params()
    before = params.clone()
    after = nodes.train(params, 0)
    assert torch.equal(params, before)
    assert not torch.equal(after, before)


def test_repeated_rows_of_equal_models_stay_equal(nodes: Nodes) -> None:
    params = nodes.initial_params()
    rows = torch.tensor([2, 0, 2, 2])
    after = nodes[rows].train(params[rows], 0)
    assert torch.allclose(after[0], after[2], atol=1e-14)
    assert torch.allclose(after[0], after[3], atol=1e-14)
    assert torch.allclose(after, nodes.train(params, 0)[rows], atol=1e-12)
    assert torch.allclose(nodes[rows].loss(params[rows], 0), nodes.loss(params, 0)[rows])


def test_repeated_rows_try_several_models_on_one_nodes_data(nodes: Nodes) -> None:
    params = nodes.initial_params()
    mine = nodes[torch.zeros(5, dtype=torch.int64)].loss(params, 0)
    ids = nodes.train_data.all()[0][0]
    expected = [literal_loss(nodes, params, row, ids) for row in range(5)]
    assert torch.allclose(mine, torch.stack(expected), atol=1e-12)


def test_a_mask_selects_rows() -> None:
    nodes = World().nodes()
    some = nodes[torch.tensor([True, False, False, True, False])]
    assert some.ids.tolist() == [0, 3]
    assert len(some) == 2


def test_every_row_has_its_own_learning_rate(nodes: Nodes) -> None:
    params = nodes.initial_params()
    rates = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    after = replace(nodes, lr=rates).train(params, 0)
    for row, rate in enumerate(rates):
        alone = replace(nodes, lr=torch.full((5,), float(rate), dtype=torch.float64))
        assert torch.allclose(alone.train(params, 0)[row], after[row], atol=1e-12)


def test_training_follows_round_and_stream(nodes: Nodes) -> None:
    params = nodes.initial_params()
    first = nodes.train(params, 0)
    assert torch.allclose(first, nodes.train(params, 0), atol=1e-14)
    assert not torch.allclose(first, nodes.train(params, 1))
    assert not torch.allclose(first, nodes.train(params, 0, stream="other"))


def test_accuracy_is_the_share_of_own_validation_samples(nodes: Nodes) -> None:
    params = nodes.initial_params()
    ids, real = nodes.valid_data.all()
    for row in range(5):
        module = mlp().double()
        module.load_state_dict(nodes.layout.unflatten(params[row]))
        mine = ids[row][real[row]]
        right = module(nodes.valid_data.pool.inputs[mine]).argmax(1)
        share = (right == nodes.valid_data.pool.targets[mine]).double().mean()
        assert nodes.accuracy(params)[row] == share


def test_a_confusion_counts_true_class_by_predicted_class(nodes: Nodes) -> None:
    scores = nodes.test(nodes.initial_params())
    ids, real = nodes.test_data.all()
    for row in range(5):
        targets = nodes.test_data.pool.targets[ids[row][real[row]]]
        assert torch.equal(scores.confusion[row].sum(1), torch.bincount(targets, minlength=3))
    assert torch.allclose(scores.loss, nodes.loss(nodes.initial_params(), 0))


def test_there_is_no_accuracy_without_classes() -> None:
    for path in PATHS:
        nodes = World(path=path, objective=Regression(), classes=0, build=two_values).nodes()
        params = nodes.initial_params()
        assert nodes.test(params).confusion is None
        with pytest.raises(ValueError, match="no accuracy without classes"):
            nodes.accuracy(params)


def two_values() -> torch.nn.Module:
    return torch.nn.Linear(10, 2)


def test_true_clusters_are_withheld() -> None:
    nodes = World().nodes()
    with pytest.raises(PermissionError, match="oracle=True"):
        _ = nodes.cluster


def test_an_oracle_sees_the_cluster_of_every_row() -> None:
    nodes = replace(World().nodes(), clusters=torch.tensor([0, 0, 1, 1, 2]))
    assert nodes[torch.tensor([4, 2, 2])].cluster.tolist() == [2, 1, 1]


def test_initial_models_follow_the_node_the_seed_and_the_stream() -> None:
    nodes = World(n=3, seeds=(1, 2, 1)).nodes()
    params = nodes.initial_params()
    assert len(params.unique(dim=0)) == 6
    assert torch.equal(params[:3], params[6:])
    assert torch.equal(nodes[torch.tensor([4, 1])].initial_params(), params[[4, 1]])
    assert not torch.equal(nodes.initial_params("other"), params)


def test_initial_models_leave_the_global_generator_alone() -> None:
    nodes = World().nodes()
    before = torch.get_rng_state()
    nodes.initial_params()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_common_start_is_one_model_a_replica() -> None:
    params = World(n=3, seeds=(1, 2), common_start=True).nodes().initial_params()
    assert torch.equal(params[:3], params[:1].expand(3, -1))
    assert torch.equal(params[3:], params[3:4].expand(3, -1))
    assert not torch.equal(params[0], params[3])


def test_a_replica_trains_as_if_it_were_alone() -> None:
    for path in PATHS:
        both, alone = World(seeds=(3, 8), path=path).nodes(), World(seeds=(8,), path=path).nodes()
        assert both.ids.tolist() == [0, 1, 2, 3, 4] * 2
        assert both.seed.tolist() == [3] * 5 + [8] * 5
        together = both.train(both.initial_params(), 2)[5:]
        assert torch.allclose(together, alone.train(alone.initial_params(), 2), atol=1e-12)
        assert torch.equal(both.draw("p", 1, 4)[5:], alone.draw("p", 1, 4))


def test_a_graph_is_the_union_over_replicas_of_their_own_graphs() -> None:
    nodes = World(n=6, seeds=(3, 8)).nodes()
    graph = nodes.graph(regular(2), 4)
    for replica, seed in enumerate((3, 8)):
        mine = graph.source // 6 == replica
        found = sorted(zip(graph.source[mine] % 6, graph.target[mine] % 6, strict=True))
        assert found == sorted(map(tuple, regular(2).edges(6, seed, 4).T.tolist()))


def test_a_graph_is_drawn_once_for_all_blocks_of_a_round() -> None:
    nodes = World(n=6).nodes()
    block = nodes[torch.arange(2)]
    assert nodes.graph(regular(2), 4) is block.graph(regular(2), 4)
    assert nodes.graph(Ring(), 0) is block.graph(Ring(), 9)
    assert nodes.graph(Full(), 0) is not nodes.graph(Ring(), 0)
    first = nodes.graph(regular(2), 4)
    again = (nodes.graph(regular(2), 5), nodes.graph(regular(2), 4))[1]
    assert torch.equal(first.source, again.source)


def test_a_full_step_is_one_step_of_gradient_descent_on_all_own_samples(nodes: Nodes) -> None:
    params = nodes.initial_params()
    after = nodes.full_step(params)
    for row in range(5):
        ids = nodes.train_data[torch.tensor([row])].all()[0][0]
        pool, module = nodes.train_data.pool, mlp().double()
        module.load_state_dict(nodes.layout.unflatten(params[row]))
        F.cross_entropy(module(pool.inputs[ids]), pool.targets[ids]).backward()
        named = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        expected = params[row] - 0.1 * nodes.layout.flatten(named)
        assert torch.allclose(after[row], expected, atol=1e-12)


def test_a_full_step_leaves_a_node_without_samples_as_it_is() -> None:
    for path in PATHS:
        nodes = World(n=3, path=path, counts=(4, 0, 4)).nodes()
        params = nodes.initial_params()
        same = [torch.equal(a, b) for a, b in zip(nodes.full_step(params), params, strict=True)]
        assert same == [False, True, False]


def test_each_row_may_have_steps_or_epochs_of_its_own(nodes: Nodes) -> None:
    params = nodes.initial_params()
    each = torch.tensor([0, 1, 2, 3, 1])
    together = nodes.train(params, 0, steps=each)
    for row, steps in enumerate(each.tolist()):
        alone = nodes[torch.tensor([row])].train(params[row : row + 1], 0, steps=steps)
        assert torch.allclose(together[row], alone[0], atol=1e-12)
    assert nodes.steps(epochs=torch.tensor([1.0, 2.0, 1.0, 1.0, 0.0])).tolist() == [2, 2, 1, 1, 0]


def test_nodes_that_all_hold_the_servers_model_are_scored_once_for_each_test_set(
    nodes: Nodes,
) -> None:
    model = nodes.initial_params()[:1]
    scores, expected = nodes.test(nodes.of_server(model)), nodes.test(model.repeat(5, 1))
    assert nodes.of_server(model).stride(0) == 0
    assert torch.allclose(scores.loss, expected.loss)
    assert scores.confusion is not None and expected.confusion is not None
    assert torch.equal(scores.confusion, expected.confusion)
