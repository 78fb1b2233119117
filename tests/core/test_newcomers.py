import torch

from coterie.core.newcomers import HOSTS, apart, hosts, mean_of

from ..world import World


def test_rows_apart_are_a_population_of_their_own() -> None:
    nodes = World(n=6, seeds=(3, 8)).nodes()
    some = apart(nodes, torch.tensor([1, 4, 7, 10]))
    assert some.n == 2 and some.ids.tolist() == [0, 1, 0, 1]
    assert some.seed.tolist() == [3, 3, 8, 8]
    assert torch.equal(some.train_data.start, nodes.train_data.start[[1, 4, 7, 10]])
    assert some.population.drawing is not nodes.population.drawing


def test_a_newcomer_asks_distinct_nodes_of_its_own_replica() -> None:
    everybody = World(n=12, seeds=(3, 8)).nodes()
    nodes = apart(everybody, torch.arange(24)[torch.arange(24) % 12 < 10])
    newcomers = apart(everybody, torch.arange(24)[torch.arange(24) % 12 >= 10])
    asked = hosts(nodes, newcomers)
    assert asked.shape == (4, HOSTS)
    for row, replica in zip(asked, [0, 0, 1, 1], strict=True):
        assert len(set(row.tolist())) == HOSTS
        assert (row // 10 == replica).all()


def test_a_newcomer_asks_nobody_it_may_not_ask() -> None:
    nodes = World(n=10).nodes()
    newcomers = apart(nodes, torch.arange(2))
    among = torch.zeros(2, 10, dtype=torch.bool)
    among[0, [2, 5]] = True
    among[1] = True
    asked = hosts(nodes, newcomers, among)
    assert sorted(asked[0].tolist()) == [-1, -1, -1, 2, 5]
    assert (asked[1] >= 0).all()


def test_the_mean_is_over_the_hosts_there_are() -> None:
    rows = torch.arange(12.0).view(4, 3)
    mean = mean_of(rows, torch.tensor([[0, 2], [3, -1]]))
    assert mean.tolist() == [[3.0, 4.0, 5.0], [9.0, 10.0, 11.0]]
    heads = rows.view(4, 3, 1).expand(4, 3, 2)
    assert mean_of(heads, torch.tensor([[0, 2]])).shape == (1, 3, 2)
    assert mean_of(rows, torch.empty(0, 2, dtype=torch.int64)).shape == (0, 3)


def test_a_small_population_hosts_with_all_its_nodes() -> None:
    nodes = World(n=3).nodes()
    newcomers = apart(nodes, torch.arange(2))
    assert hosts(nodes, newcomers).sort(dim=1).values.tolist() == [[0, 1, 2]] * 2
