"""Ours beside the paper's: what counts as a difference."""

from __future__ import annotations

import pytest

from coterie.reproduce.beside import Row, Value, digits, keys_of, table, title

KEY = "accuracy:minority"


def row(mean: float, std: float, paper: Value, **more) -> Row:
    spread = {"mean": mean, "std": std, "ci95": [mean - std, mean + std]}
    return Row("EL", "30:2", [RESULT], {KEY: spread}, {KEY: paper}, **more)


RESULT = {"label": "EL", "scenario": "30:2", "seed": 1, "settled": None, "oracle": False}


@pytest.mark.parametrize(
    "mean, std, paper, beyond",
    [
        (41.9, 0.0, Value(40.0, 1.0), False),
        (42.1, 0.0, Value(40.0, 1.0), True),
        (46.0, 3.0, Value(40.0, 4.0), False),  # spreads add up: sqrt(3^2 + 4^2) = 5
        (51.0, 3.0, Value(40.0, 4.0), True),
        (39.0, 0.4, Value(40.0), True),  # the paper gives no spread
        (39.0, 0.0, Value(40.0), False),  # nobody does: nothing can be said
    ],
)
def test_a_difference_counts_beyond_two_standard_deviations(mean, std, paper, beyond):
    found = row(mean, std, paper).difference(KEY)
    assert found is not None
    assert found.value == pytest.approx(mean - paper.mean) and found.beyond is beyond


def test_a_tolerance_forgives_a_small_difference():
    assert row(41, 0.1, Value(40, 0.1)).difference(KEY).beyond
    assert not row(41, 0.1, Value(40, 0.1), tolerance={KEY: 1.5}).difference(KEY).beyond


def test_an_open_row_shows_the_paper_alone():
    opened = Row("EL", "30:2", paper={KEY: Value(40, 1)}, state="open")
    first, second = table([opened], [KEY]).texts()
    assert first[2:4] == ["open", "–"] and second[2:4] == ["paper", "40.00 ± 1.00"]


def test_rows_without_paper_are_one_line():
    measured = {KEY: {"mean": 40, "std": 1, "ci95": [39, 41]}}
    assert len(table([Row("EL", "30:2", [RESULT], measured)], [KEY]).rows) == 1


def test_columns_are_the_papers_where_it_has_some():
    assert keys_of([row(1, 0, Value(1))]) == [KEY]


def test_a_single_cluster_has_no_columns_of_its_own():
    one = {**RESULT, "metric": "accuracy", "accuracy": {"all": 40.0}, "rounds_to_target": 7.5}
    assert keys_of([Row("EL", "8", [one])]) == ["accuracy_all", "rounds_to_target"]
    two = {**one, "accuracy": {"a": 40.0, "b": 30.0}, "rounds_to_target": None}
    assert keys_of([Row("EL", "8", [two])])[:3] == ["accuracy:a", "accuracy:b", "accuracy_all"]


def test_titles_and_decimals_follow_the_key():
    assert [title(k) for k in (KEY, "mse:a", "demographic_parity")] == ["minority %", "a MSE", "DP"]
    assert title("note:lambda conv4") == "lambda conv4" and digits("note:entropy") == 2
    assert [digits(k) for k in (KEY, "fair_accuracy_of_means", "equalized_odds")] == [2, 2, 4]
