from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data import Split, partitions
from coterie.data.partitions import Natural
from coterie.errors import InputError


def samples(count: int = 600, classes: int = 5, users: int = 30) -> Split:
    places = np.arange(count)
    return Split(np.zeros((count, 1), np.float32), places % classes, places * 7 % users)


def dealt(
    name: str, split: Split, nodes: int, seed: int = 0, **options: object
) -> list[np.ndarray]:
    return partitions.build({"name": name, **options}).split(split, nodes, seed)


def labels_of(split: Split, parts: list[np.ndarray]) -> list[set[int]]:
    return [set(split.targets[part].tolist()) for part in parts]


GOLDEN_IID = [[3, 1, 2], [5, 4, 0]]
GOLDEN_DIRICHLET = [52, 133, 251, 164]
REGRESSION = Split(np.zeros((50, 1), np.float32), np.zeros((50, 1), np.float32))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(partitions.entries)), st.integers(1, 12), st.integers(0, 2**63 - 1))
def test_a_partition_deals_no_sample_twice_and_the_same_each_time(
    name: str, nodes: int, seed: int
) -> None:
    split = samples()
    parts = dealt(name, split, nodes, seed)
    together = np.concatenate(parts)
    assert len(parts) == nodes
    assert min(len(part) for part in parts) >= 1
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < len(split)
    again = dealt(name, split, nodes, seed)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", sorted(partitions.entries))
def test_another_seed_deals_otherwise(name: str) -> None:
    split = samples()
    one, other = dealt(name, split, 4, seed=1), dealt(name, split, 4, seed=2)
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "quantity"])
def test_every_sample_is_dealt(name: str) -> None:
    assert sum(len(part) for part in dealt(name, samples(), 7)) == 600


def test_iid_sizes_differ_by_one_at_most() -> None:
    sizes = [len(part) for part in dealt("iid", samples(), 7)]
    assert max(sizes) - min(sizes) == 1


def test_a_small_alpha_leaves_few_classes_to_a_node() -> None:
    split = samples(5000, classes=10)

    def classes(alpha: float) -> float:
        parts = dealt("dirichlet", split, 10, alpha=alpha)
        return float(np.mean([len(labels) for labels in labels_of(split, parts)]))

    assert classes(0.1) < 6 < classes(100.0)


def test_a_large_alpha_is_like_iid() -> None:
    split = samples(5000)
    for part in dealt("dirichlet", split, 5, alpha=1e5):
        assert np.bincount(split.targets[part]) == pytest.approx(200, abs=5)


def test_balance_keeps_sizes_closer() -> None:
    split = samples(5000, classes=50)

    def spread(balance: bool) -> float:
        parts = dealt("dirichlet", split, 10, alpha=0.2, balance=balance)
        return float(np.std([len(part) for part in parts]))

    assert spread(True) < spread(False) / 2


def test_dirichlet_gives_every_node_enough() -> None:
    sizes = [len(part) for part in dealt("dirichlet", samples(), 20, alpha=0.3, min_samples=8)]
    assert min(sizes) >= 8


def test_a_tiny_alpha_is_no_division_by_zero() -> None:
    split = samples(1000, classes=10)
    parts = dealt("dirichlet", split, 3, alpha=1e-3, min_samples=1)
    assert sum(len(part) for part in parts) == 1000


def test_dirichlet_gives_up_with_advice() -> None:
    with pytest.raises(InputError, match=r"after 200 draws .* a larger alpha"):
        dealt("dirichlet", samples(200, classes=2), 10, alpha=0.001)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_each_node_has_its_number_of_classes(each: int, nodes: int, seed: int) -> None:
    split = samples()
    parts = dealt("shards", split, nodes, seed, classes_per_node=each)
    owned = labels_of(split, parts)
    assert {len(labels) for labels in owned} == {each}
    counts = [sum(label in labels for labels in owned) for label in range(5)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("each", [0, 6])
def test_a_node_cannot_have_more_classes_than_there_are(each: int) -> None:
    with pytest.raises(InputError, match=r"classes_per_node must be in 1..5, .* got"):
        dealt("shards", samples(), 4, classes_per_node=each)


@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_sorted_shards_are_runs_of_the_samples_in_order_of_their_labels(
    per_node: int, nodes: int, seed: int
) -> None:
    split = samples()
    parts = dealt("sorted-shards", split, nodes, seed, per_node=per_node)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(split)))
    size = len(split) // (nodes * per_node)
    assert all(per_node * size <= len(part) <= per_node * (size + 1) for part in parts)
    steps = [np.diff(split.targets[part]) for part in parts]
    assert all((step < 0).sum() < per_node for step in steps)  # each shard ascends


def test_sorted_shards_have_few_classes() -> None:
    split = samples(6000, classes=10)
    owned = labels_of(split, dealt("sorted-shards", split, 100))
    assert {len(labels) for labels in owned} <= {1, 2, 3, 4}
    assert np.mean([len(labels) for labels in owned]) < 2.2


def test_normal_labels_lie_about_a_point_of_the_circle() -> None:
    split = samples(6000, classes=10)
    for part in dealt("normal", split, 6, sigma=0.5):
        counts = np.bincount(split.targets[part], minlength=10)
        # the best window of five neighbouring labels holds nearly all
        windows = [np.roll(counts, shift)[:5].sum() for shift in range(10)]
        assert max(windows) > 0.98 * counts.sum()


def test_normal_partitions_never_exceed_an_equal_share() -> None:
    assert max(len(part) for part in dealt("normal", samples(), 7)) <= 600 // 7


def test_normal_partitions_need_enough_of_each_label() -> None:
    with pytest.raises(InputError, match=r"a node has only .* samples"):
        dealt("normal", samples(600), 4, sigma=0.01, min_samples=140)


def test_each_node_is_one_user() -> None:
    split = samples()
    assert split.users is not None
    parts = dealt("natural", split, 30)
    owners = [set(split.users[part].tolist()) for part in parts]
    assert all(len(owner) == 1 for owner in owners)
    assert set.union(*owners) == set(range(30))
    assert sum(len(part) for part in parts) == 600


def test_the_users_of_the_nodes_can_be_asked() -> None:
    split = samples()
    assert split.users is not None
    users = Natural().users(split, 8, seed=3)
    parts = Natural().split(split, 8, seed=3)
    assert [split.users[part[0]] for part in parts] == users.tolist()


def test_users_with_few_samples_are_left_out() -> None:
    users = np.array([0] * 9 + [1])
    split = Split(np.zeros((10, 1), np.float32), np.zeros(10, np.int64), users)
    assert Natural(min_samples=2).users(split, 1, seed=0).tolist() == [0]
    with pytest.raises(InputError, match="1 users of at least 2 samples, got 2 nodes"):
        dealt("natural", split, 2, min_samples=2)


def test_a_natural_partition_needs_users() -> None:
    with pytest.raises(InputError, match="who made each sample"):
        dealt("natural", REGRESSION, 2)


def test_quantities_differ_and_have_a_minimum() -> None:
    sizes = sorted(len(part) for part in dealt("quantity", samples(), 10, alpha=0.3))
    assert sizes[0] >= 10
    assert sizes[-1] > 3 * sizes[0]


def test_a_larger_alpha_makes_quantities_alike() -> None:
    spreads = [
        np.std([len(part) for part in dealt("quantity", samples(), 10, alpha=alpha)])
        for alpha in (0.1, 10.0, 1e6)
    ]
    assert all(more > less for more, less in pairwise(spreads))


@pytest.mark.parametrize(
    "name", ["iid", "dirichlet", "shards", "sorted-shards", "normal", "quantity"]
)
def test_more_nodes_than_samples_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="clusters that need more samples than there are"):
        dealt(name, samples(20), 21)


@pytest.mark.parametrize("name", sorted(partitions.entries))
def test_a_partition_needs_a_node(name: str) -> None:
    with pytest.raises(InputError):
        dealt(name, samples(), 0)


@pytest.mark.parametrize("name", ["dirichlet", "shards", "sorted-shards", "normal"])
def test_regression_cannot_be_dealt_by_class(name: str) -> None:
    with pytest.raises(InputError, match="got regression targets; use iid or quantity"):
        dealt(name, REGRESSION, 2)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("dirichlet", "alpha"),
        ("quantity", "alpha"),
        ("normal", "sigma"),
        ("sorted-shards", "per_node"),
    ],
)
def test_a_spread_must_be_positive(name: str, option: str) -> None:
    with pytest.raises(InputError, match=f"{option} must be above 0, got 0"):
        dealt(name, samples(), 2, **{option: 0.0})


def test_a_partition_is_the_same_on_every_machine() -> None:
    assert [part.tolist() for part in dealt("iid", samples(6), 2, seed=5)] == GOLDEN_IID
    sizes = [len(part) for part in dealt("dirichlet", samples(), 4, seed=5)]
    assert sizes == GOLDEN_DIRICHLET


def test_every_option_of_a_partition_has_a_doc() -> None:
    for entry in partitions.entries.values():
        assert all(option.doc for option in entry.options()), entry.name
