"""The claims of a paper: when they hold, when they do not, and when nobody can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coterie.errors import InputError
from coterie.report.records import Study, combine, read_run
from coterie.report.tables import to_markdown
from coterie.reproduce import claims
from coterie.reproduce.claims import Verdict, values
from coterie.reproduce.experiment import ClaimTable, read
from tests.contract.command import write
from tests.report.folder import Made, write_run
from tests.reproduce.conftest import tiny

PLACE = "facade", "14:2"


def claim(**changes: Any) -> ClaimTable:
    table = {"text": "It leads.", "label": "a", "key": "accuracy_all", "relation": ">", "than": "b"}
    return ClaimTable.model_validate(table | changes)


def verdict(ours: dict[int, float], other: dict[int, float], **changes: Any) -> Verdict:
    return Verdict(claim(**changes), ours, other)


@pytest.mark.parametrize(
    "relation, by, ours, state",
    [
        (">", 0, 2.1, "holds"),
        (">", 0, 2.0, "does not hold"),
        (">", 0.5, 2.5, "holds"),
        (">", 0.5, 2.4, "does not hold"),
        ("<", 0, 1.9, "holds"),
        ("<", 0, 2.0, "does not hold"),
        ("<", 1.5, 0.6, "does not hold"),
        ("=", 0, 2.0, "holds"),
        ("=", 0, 2.1, "does not hold"),
        ("=", 0.2, 1.9, "holds"),
    ],
)
def test_a_claim_is_a_comparison_with_a_margin(relation, by, ours, state):
    assert verdict({1: ours}, {1: 2.0}, relation=relation, by=by).state == state


def test_a_claim_holds_where_it_holds_for_every_seed():
    some = verdict({1: 9.0, 2: 9.0, 3: 4.0}, {1: 5.0, 2: 5.0, 3: 5.0})
    assert some.state == "does not hold" and some.held == 2
    assert "2 of 3 seeds" in some.line()


def test_only_seeds_that_both_sides_have_are_compared_and_none_is_open():
    assert verdict({1: 9.0, 2: 1.0}, {1: 5.0}).state == "holds"
    assert verdict({1: 9.0}, {2: 5.0}).state == "open"
    assert verdict({1: 9.0}, {2: 5.0}).line() == "open: It leads."


def test_the_table_has_the_numbers_and_an_error_its_share():
    better = verdict({1: 0.006, 2: 0.006}, {1: 0.008, 2: 0.008}, relation="<", key="mse_all")
    opened = verdict({}, {}, round=5)
    first, second = claims.table([better, opened]).texts()
    assert first[1:3] == ["holds", "all MSE"]
    assert first[3:] == ["a 0.0060 ± 0.0000", "< b 0.0080 ± 0.0000", "-0.0020 (-25.0%)", "2 of 2"]
    assert second[1:4] == ["open", "all %, round 5", "–"]
    assert "&lt; b" in to_markdown(claims.table([better]))
    assert claims.count([better, opened]) == "claims: 1 of 2 hold, 1 open."
    assert claims.count([]) == ""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return combine([read_run(write_run(tmp_path / "run", Made(every=5)))])


def test_values_of_the_end_are_those_of_the_aggregate(study):
    found = values(study, PLACE, "accuracy:minority")
    results = [r for r in study.results if r["label"] == "facade"]
    assert found == {r["seed"]: r["accuracy"]["minority"] for r in results}
    assert values(study, PLACE, "settled") == {1: 1.0, 2: 1.0, 3: 0.0}
    assert values(study, ("epidemic", "14:2"), "settled") == {}


def test_values_after_a_round_are_those_of_its_evaluation(study):
    frame = study.frames["cluster"]
    rows = frame[(frame["label"] == "facade") & (frame["round"] == 5)]
    mine = rows[rows["cluster"] == "minority"]
    expected = dict(zip(mine["seed"].astype(int), mine["accuracy"], strict=True))
    assert values(study, PLACE, "accuracy:minority", 5) == expected and len(expected) == 3
    assert set(values(study, PLACE, "accuracy_all", 5)) == {1, 2, 3}
    assert values(study, PLACE, "accuracy_all", 4) == {}, "it was not evaluated then"


def test_drops_are_what_is_lost_between_evaluations_and_gains_count_as_none(study):
    frame = study.frames["overall"]
    rows = frame.index[(frame["label"] == "facade") & (frame["seed"] == 2)]
    assert values(study, PLACE, "drops")[2] == 0, "it only rises"
    for row, accuracy in zip(rows[:5], (50.0, 80.0, 70.0, 90.0, 85.0), strict=True):
        frame.loc[row, "accuracy"] = accuracy
    frame.loc[rows[5:], "accuracy"] = 85.0
    falls = values(study, PLACE, "drops")[2]
    assert falls == pytest.approx(15 / (len(rows) - 1))


CLAIM = {
    "text": "EL lags.",
    "label": "EL",
    "key": "accuracy_all",
    "relation": "<",
    "than": "facade",
}


def broken(**changes: Any) -> dict[str, Any]:
    return tiny() | {"claim": [CLAIM | {"scenario": "4:2"} | changes]}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"label": "El"}, "unknown label at claim.0: 'El'"),
        ({"than": "facde"}, "did you mean 'facade'?"),
        ({"scenario": "4:3"}, "unknown scenario at claim.0"),
        ({"scenario": ""}, "claim.0: 'EL' is measured on 4:2, 3:3; say which one as `scenario`"),
        ({"key": "acuracy_all"}, "key 'acuracy_all' is none of the aggregate"),
        ({"key": "accuracy:uprigt"}, "did you mean 'accuracy:upright'?"),
        ({"key": "models", "round": 3}, "leave out `round`"),
        ({"relation": ">="}, "claim.0.relation"),
        ({"by": -1}, "claim.0.by"),
    ],
)
def test_a_wrong_claim_is_named_before_anything_runs(changes, message, tmp_path):
    path = write(tmp_path / "tiny.toml", broken(**changes))
    with pytest.raises(InputError) as error:
        read(path, "tiny")
    assert message in str(error.value)


def test_a_label_of_another_experiment_is_found_on_its_own_scenario(tmp_path):
    write(tmp_path / "tiny.toml", tiny())
    other = tiny() | {"uses": ["tiny/el"], "paper": {}, "figure": [], "claim": []}
    other["data"]["ratios"] = ["5:1"]
    other["part"] = [other["part"][1]]
    del other["paper"]
    experiment = read(write(tmp_path / "other.toml", other), "other")
    assert experiment.place("facade") == ("facade", "5:1")
    assert experiment.place("EL", "3:3") == ("EL", "3:3")


def test_the_command_says_which_claims_hold(coterie, here, file):
    sure = {"label": "EL", "key": "accuracy_all", "relation": ">", "than": -1.0}
    made = [
        {"text": "It is something.", **sure},
        {"text": "Already after two rounds.", **sure, "round": 2},
        {"text": "It is perfect.", **sure, "than": 100.0},
        {"text": "It beats two heads.", **sure, "than": "facade"},
    ]
    write(file, tiny() | {"claim": [{**entry, "scenario": "3:3"} for entry in made]})
    outcome = coterie("reproduce", file, "--only", "el")
    assert outcome.code == 0, outcome.err
    for words in ("holds: It is something. [EL ", "does not hold: It is perfect. [EL "):
        assert words in outcome.out
    assert "holds: Already after two rounds. [EL " in outcome.out
    assert "open: It beats two heads." in outcome.out
    assert "claims: 2 of 4 hold, 1 open." in outcome.out
    folder = here / "runs" / "reproduce" / "tiny"
    assert "| It is perfect. | does not hold |" in (folder / "tables" / "claims.md").read_text()
    page = (folder / "report.html").read_text()
    assert "What the paper claims" in page and "It beats two heads." in page
