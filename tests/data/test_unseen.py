import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.data.unseen import unseen
from coterie.errors import InputError

CLUSTER = np.array([0] * 12 + [1] * 4)


def test_unseen_nodes_are_as_many_of_every_cluster_as_its_size_asks_for() -> None:
    taken = unseen(CLUSTER, 1, 0.25)
    assert np.bincount(CLUSTER[taken]).tolist() == [3, 1]
    assert taken.tolist() == sorted(set(taken.tolist()))


def test_unseen_nodes_follow_the_seed_alone() -> None:
    assert unseen(CLUSTER, 1, 0.25).tolist() == unseen(CLUSTER, 1, 0.25).tolist()
    assert len({tuple(unseen(CLUSTER, seed, 0.25)) for seed in range(10)}) > 5


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4), st.floats(0.05, 0.9), st.integers(0, 9)
)
def test_populations_of_one_size_lose_as_many_nodes(
    sizes: list[int], share: float, seed: int
) -> None:
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    total = round(share * len(cluster))
    if not 0 < total <= len(cluster) - len(sizes):
        with pytest.raises(InputError, match=r"evaluate\.unseen_clients"):
            unseen(cluster, seed, share)
        return
    taken = unseen(cluster, seed, share)
    assert len(taken) == total
    assert (np.bincount(cluster[taken], minlength=len(sizes)) < sizes).all()


@pytest.mark.parametrize("share", [0.01, 0.95])
def test_nobody_and_nearly_everybody_are_refused(share: float) -> None:
    with pytest.raises(InputError, match="at least one, and leave one of every cluster"):
        unseen(CLUSTER, 1, share)
