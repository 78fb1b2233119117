import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.metrics import settlement

CLUSTER = ["a", "a", "a", "b"]


@pytest.mark.parametrize(
    ("choice", "settled", "unshared"),
    [
        ([1, 1, 1, 0], True, True),
        ([0, 0, 0, 0], False, False),
        ([0, 0, 1, 2], False, True),
        ([0, 0, 1, 1], False, False),
    ],
)
def test_settled_asks_for_one_head_a_cluster_and_unshared_only_for_no_common_head(
    choice: list[int], settled: bool, unshared: bool
) -> None:
    assert settlement.settled(choice, CLUSTER) is settled
    assert settlement.unshared(choice, CLUSTER) is unshared


def test_the_matrix_counts_nodes_by_cluster_and_head() -> None:
    assert settlement.matrix([0, 2, 2, 1], CLUSTER).tolist() == [[1, 0, 2], [0, 1, 0]]
    assert settlement.matrix([0, 0, 0, 0], CLUSTER, heads=2).tolist() == [[3, 0], [1, 0]]


def test_the_first_settled_round_is_the_one_from_which_it_stays_settled() -> None:
    good, bad = [0, 0, 0, 1], [0, 0, 1, 1]
    assert settlement.first_settled_round([good, bad, good, good], CLUSTER) == 2
    assert settlement.first_settled_round([good, good], CLUSTER) == 0
    assert settlement.first_settled_round([good, bad], CLUSTER) is None
    assert settlement.first_settled_round(np.zeros((0, 4)), CLUSTER) is None


def test_the_first_settled_round_can_ask_for_unshared_heads_only() -> None:
    rows = [[0, 0, 0, 0], [0, 0, 1, 2]]
    assert settlement.first_settled_round(rows, CLUSTER) is None
    assert settlement.first_settled_round(rows, CLUSTER, settlement.unshared) == 1


def test_the_rand_index_is_one_when_heads_and_clusters_agree() -> None:
    assert settlement.adjusted_rand_index([1, 1, 1, 0], CLUSTER) == 1
    assert settlement.adjusted_rand_index([0, 0, 0, 0], CLUSTER) == 0


def test_no_nodes_at_all_are_legal() -> None:
    assert settlement.matrix([], []).shape == (0, 0)
    assert settlement.settled([], []) is True


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_a_choice_that_names_the_cluster_is_settled_and_settled_implies_unshared(
    cluster: list[int],
) -> None:
    assert settlement.settled(cluster, cluster)
    assert settlement.unshared(cluster, cluster)
    assert int(settlement.matrix(cluster, cluster).sum()) == len(cluster)


def test_nothing_is_settled_before_everybody_has_chosen() -> None:
    cluster = ["a", "a", "b"]
    assert settlement.settled([0, 0, 1], cluster) and settlement.unshared([0, 0, 1], cluster)
    assert not settlement.settled([0, -1, 1], cluster)
    assert not settlement.unshared([0, -1, 1], cluster)
    assert settlement.matrix([0, -1, 1], cluster).tolist() == [[1, 0], [0, 1]]


THREE = ["A", "A", "A", "B", "B", "C"]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ([0, 0, 0, 1, 1, 2], ""),
        ([0, 0, 0, 1, 1, 1], "B and C share head 1"),
        ([0, 0, 0, 0, 0, 0], "A, B and C share head 0"),
        ([0, 0, 2, 1, 1, 3], "A is split between heads 0 (2 nodes) and 2 (1 node)"),
        (
            [0, 0, 0, 1, 2, 2],
            "B and C share head 2; B is split between heads 1 (1 node) and 2 (1 node)",
        ),
        ([0, 0, -1, 1, 1, 2], "1 node has not chosen yet"),
        ([0, 0, -1, -1, 1, 1], "2 nodes have not chosen yet; B and C share head 1"),
    ],
)
def test_the_problem_is_told_in_plain_words(choice: list[int], words: str) -> None:
    assert settlement.problems(choice, THREE) == words


def test_models_of_learners_are_called_so_and_not_heads() -> None:
    told = settlement.verdict([[0, 0, 0, 3, 4, 0]], [7], THREE, 0, settlement.MODELS)["settlement"]
    assert "share the model of node 0" in told and "head" not in told
    assert "is split between the models of nodes 3 (1 node) and 4 (1 node)" in told
    told = settlement.verdict([[0, 0, 0, 1, 1, 1]], [7], THREE, 3, settlement.WHOLE)["settlement"]
    assert told == "never settled: B and C share model 1"
    kinds = (settlement.HEADS, settlement.WHOLE, settlement.MODELS)
    assert [settlement.word(kind) for kind in kinds] == ["head", "model", "model"]


def test_with_heads_to_spare_a_split_is_no_problem() -> None:
    assert settlement.judge_of(3, THREE) is settlement.settled
    assert settlement.judge_of(4, THREE) is settlement.unshared
    assert settlement.problems([0, 3, 0, 1, 1, 2], THREE, settlement.unshared) == ""
    shared = settlement.problems([0, 3, 0, 1, 1, 1], THREE, settlement.unshared)
    assert shared == "B and C share head 1"


GOOD, BAD = [0, 0, 0, 1], [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([GOOD], "settled since round 1"),
        ([BAD, GOOD], "settled since round 35"),
        ([BAD, GOOD, BAD, GOOD], "settled since round 90, after it was lost 1 time"),
        ([BAD], "never settled: a and b share head 0"),
        ([BAD, [0, 0, 1, 1]], "never settled: a and b share head 1; a is split between heads 0 (2"),
        ([BAD, GOOD, BAD], "settled at round 35, lost at round 80: a and b share head 0"),
        ([GOOD, BAD, GOOD, BAD], "settled at round 80, lost at round 90 (and 1 time before): a"),
        ([], "never settled: nobody chose"),
    ],
)
def test_the_story_says_when_it_settled_or_was_lost(choices: list[list[int]], words: str) -> None:
    rounds = [1, 35, 80, 90][: len(choices)]
    assert settlement.story(rounds, choices, CLUSTER).startswith(words)


@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=8))
def test_the_story_agrees_with_the_judge(choices: list[list[int]]) -> None:
    told = settlement.story(list(range(len(choices))), choices, CLUSTER)
    assert told.startswith("settled since") == settlement.settled(choices[-1], CLUSTER)
    first = settlement.first_settled_round(choices, CLUSTER)
    assert first is None or told.startswith(f"settled since round {first}")
