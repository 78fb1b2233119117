"""Who owns what: every sample once, clusters by size, held-out and test samples in their place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie.data import Dataset, Split
from coterie.data.holdings import Cluster, Holdings, Plan, Replica, deal
from coterie.data.partitions import Iid, Natural
from coterie.data.shifts import Labels, Rotation
from coterie.errors import InputError

UPRIGHT, TURNED = Cluster("upright"), Cluster("turned", (Rotation(180),))


def dataset(train: int = 120, test: int = 20, users: int = 0) -> Dataset:
    """Images whose first pixel is their own number."""

    def split(count: int) -> Split:
        images = np.zeros((count, 1, 4, 4), np.uint8)
        images[:, 0, 0, 0] = np.arange(count)
        owners = np.arange(count) % users if users else None
        return Split(images, np.arange(count) % 6, owners)

    return Dataset("numbered", split(train), split(test), 6, (0.5,), (0.5,), bool(users))


def owned(holdings: Holdings, split: str, node: int) -> np.ndarray:
    """Rows of the pool that a node has in a split."""
    samples = getattr(holdings, split)
    start, count = int(samples.start[node]), int(samples.count[node])
    return samples.index[start : start + count].numpy()


def shown(holdings: Holdings, split: str, rows: np.ndarray) -> np.ndarray:
    """The first channel of these samples, as their owner sees them."""
    return getattr(holdings, split).pool.show(torch.from_numpy(rows)).numpy()[:, 0]


def numbers(holdings: Holdings, node: int) -> set[int]:
    """The original numbers of a node's train and validation images, upright or turned."""
    rows = np.concatenate([owned(holdings, "train", node), owned(holdings, "valid", node)])
    images = shown(holdings, "train", rows)
    return set(np.maximum(images[:, 0, 0], images[:, 3, 3]).tolist())


def test_every_sample_has_one_owner_in_each_replica() -> None:
    replicas = [Replica("6:2", seed, (6, 2)) for seed in (1, 2)]
    held = deal(dataset(), [UPRIGHT, TURNED], replicas, Plan(Iid(), holdout=0.2))
    for first in (0, 8):
        parts = [numbers(held, node) for node in range(first, first + 8)]
        assert sorted(n for part in parts for n in part) == list(range(120))
    assert numbers(held, 0) != numbers(held, 8)


def test_clusters_have_as_many_nodes_and_samples_as_asked() -> None:
    held = deal(dataset(), [UPRIGHT, TURNED], [Replica("6:2", 3, (6, 2))], Plan(Iid()))
    assert np.bincount(held.cluster.numpy()).tolist() == [6, 2]
    assert {len(numbers(held, node)) for node in range(8)} == {15}


def test_a_turned_node_trains_and_is_tested_on_turned_images() -> None:
    held = deal(dataset(), [UPRIGHT, TURNED], [Replica("3:3", 3, (3, 3))], Plan(Iid()))
    for split in ("train", "test"):
        for node, cluster in enumerate(held.cluster.tolist()):
            images = shown(held, split, owned(held, split, node))
            away = images[:, 0, 0] if cluster else images[:, 3, 3]
            assert not away.any()


def test_nodes_of_a_cluster_share_their_test_segment() -> None:
    held = deal(dataset(), [UPRIGHT, TURNED], [Replica("5:3", 3, (5, 3))], Plan(Iid()))
    starts = [set(held.test.start[held.cluster == c].tolist()) for c in (0, 1)]
    assert [len(found) for found in starts] == [1, 1] and starts[0] != starts[1]
    assert len(held.test.index) == 40


def test_held_out_samples_are_not_trained_on() -> None:
    held = deal(dataset(), [UPRIGHT], [Replica("4", 1, (4,))], Plan(Iid(), holdout=0.25))
    for node in range(4):
        train, valid = owned(held, "train", node), owned(held, "valid", node)
        assert (len(train), len(valid)) == (23, 7) and not set(train) & set(valid)


def test_clusters_of_different_labels_use_all_their_samples() -> None:
    clusters = [Cluster("low", (Labels((0, 1, 2)),)), Cluster("high", (Labels((3, 4, 5)),))]
    held = deal(dataset(), clusters, [Replica("5:1", 1, (5, 1))], Plan(Iid()))
    sizes = [sum(len(numbers(held, n)) for n in range(6) if held.cluster[n] == c) for c in (0, 1)]
    assert sizes == [60, 60]


def test_a_cluster_without_nodes_gets_nothing() -> None:
    held = deal(dataset(), [UPRIGHT, TURNED], [Replica("4:0", 1, (4, 0))], Plan(Iid()))
    assert sorted(n for node in range(4) for n in numbers(held, node)) == list(range(120))


@pytest.mark.parametrize("shifts", [(), (Labels((0, 1, 2, 3, 4)),)])
def test_natural_nodes_are_tested_on_the_samples_of_their_own_users(
    shifts: tuple[Labels, ...],
) -> None:
    data = dataset(test=60, users=60)
    clusters = [Cluster("a", shifts), Cluster("b", (*shifts, Rotation(180)))]
    held = deal(data, clusters, [Replica("3:2", 5, (3, 2))], Plan(Natural(), holdout=0.2))
    users = [{n % 60 for n in numbers(held, node)} for node in range(5)]
    assert [len(found) for found in users] == [1] * 5
    for node in range(5):
        images = shown(held, "test", owned(held, "test", node))
        tested = set((np.maximum(images[:, 0, 0], images[:, 3, 3]) % 60).tolist())
        assert tested == users[node]


def test_a_limit_on_test_samples_takes_the_same_ones_for_all() -> None:
    plan = Plan(Iid(), test_samples=7)
    held = deal(dataset(), [UPRIGHT], [Replica("2", s, (2,)) for s in (1, 2)], plan)
    tests = {tuple(owned(held, "test", node).tolist()) for node in range(4)}
    assert len(tests) == 1 and len(tests.pop()) == 7


def test_more_nodes_than_samples_are_refused() -> None:
    with pytest.raises(InputError, match="use fewer nodes or more data"):
        deal(dataset(train=5), [UPRIGHT], [Replica("9", 1, (9,))], Plan(Iid()))


def test_a_node_may_be_tested_on_samples_of_its_own() -> None:
    plan = Plan(Iid(), holdout=0.1, own_test=0.2)
    held = deal(dataset(), [UPRIGHT, TURNED], [Replica("4:2", 3, (4, 2))], plan)
    whole = deal(dataset(), [UPRIGHT, TURNED], [Replica("4:2", 3, (4, 2))], Plan(Iid(), 0.1))
    for node in range(6):
        parts = [owned(held, split, node) for split in ("train", "valid", "test")]
        assert [len(part) for part in parts] == [14, 2, 4]
        assert sorted(np.concatenate(parts)) == sorted(
            np.concatenate([owned(whole, split, node) for split in ("train", "valid")])
        )
        assert set(parts[1]) == set(owned(whole, "valid", node))
