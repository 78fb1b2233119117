from pathlib import Path

import numpy as np
import pytest

from coterie.metrics.statistics import share_interval
from coterie.report.heads import History, drawn_rounds, head_losses, head_shares, histories
from coterie.report.records import Study, combine, read_run
from coterie.report.settling import rate_of, settlement_rates, settlement_table
from coterie.report.summarize import aggregate

from .folder import Made, write_run


def study_of(folder: Path, **more: object) -> Study:
    return combine([read_run(write_run(folder, Made(**more)))])


@pytest.mark.parametrize(
    "count, total, low, high",
    [  # computed by hand from Wilson's formula with z = 1.959964
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (32, 32, 0.8928, 1.0),
    ],
)
def test_the_interval_of_a_share_is_wilsons(
    count: int, total: int, low: float, high: float
) -> None:
    assert share_interval(count, total) == pytest.approx((low, high), abs=1e-4)


def test_the_share_of_nothing_has_no_interval() -> None:
    assert share_interval(0, 0) is None


def test_a_rate_knows_its_seeds_and_its_interval() -> None:
    rate = rate_of([True, True, False, True])
    assert (rate.settled, rate.seeds, rate.share) == (3, 4, 0.75)
    assert rate.low < 0.75 < rate.high


def test_the_table_tells_how_often_and_when(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    table = settlement_table(study.results, study.order)
    (row,) = table.texts()
    assert dict(zip(table.header, row, strict=True)) == {
        "algorithm": "facade",
        "scenario": "14:2",
        "rounds": "20",
        "settled": "2/3",
        "rate %": "67",
        "95% interval": "21 to 94",
        "median round": "6",
        "first": "6",
        "last": "6",
    }


def test_a_seed_that_started_again_has_not_settled(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    for result in study.results:
        result["restarts"] = int(result["seed"] == 1)
    table = settlement_table(study.results, study.order)
    told = dict(zip(table.header, table.texts()[0], strict=True))
    assert (told["settled"], told["restarted"]) == ("1/3", "1")
    assert aggregate(study.results)["facade"]["14:2"]["settled"]["mean"] == 1 / 3
    (panel,) = settlement_rates(study)
    assert max(trace.y[-1] for trace in panel.figure.data if trace.name == "facade") < 40


def test_choices_are_held_until_the_next_record() -> None:
    history = History(
        1, np.array([2, 5]), np.array([[0, 0], [0, 1]]), np.array(["majority", "minority"])
    )
    assert history.at(np.array([1, 2, 4, 5, 9])).tolist() == [[0, 0]] * 3 + [[0, 1]] * 2


def test_the_rate_by_round_ends_at_the_tables_rate(tmp_path: Path) -> None:
    (panel,) = settlement_rates(study_of(tmp_path))
    band, line = panel.figure.data
    assert panel.title == "14:2" and line.name == "facade"
    assert line.x[-1] == 20 and line.y[-1] == pytest.approx(66.667, abs=1e-3)
    assert max(band.y) <= 100 and min(band.y) >= 0


def test_shares_of_a_cluster_add_up_and_its_own_head_comes_first(tmp_path: Path) -> None:
    panels = head_shares(study_of(tmp_path, seeds=(1, 2)))
    assert [panel.title for panel in panels] == ["majority", "minority"]
    for panel in panels:
        shares = np.array([trace.y for trace in panel.figure.data])
        assert shares.sum(axis=0) == pytest.approx(100, abs=0.05)
        assert shares[0, -1] == 100, "both seeds settled"


def test_algorithms_without_heads_have_no_part_in_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, labels={"epidemic": "epidemic"})
    assert not histories(study, "epidemic", "14:2")
    assert not settlement_rates(study) and not head_shares(study) and not head_losses(study)
    assert not settlement_table(study.results, study.order).rows


def test_long_runs_are_drawn_at_some_rounds_only(tmp_path: Path) -> None:
    rounds = drawn_rounds(study_of(tmp_path, rounds=1200, every=400), "facade", "14:2")
    assert (rounds[0], rounds[-1]) == (1, 1200) and len(rounds) <= 300
