"""Whom nodes picked, drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.report.files import available, write_figure
from coterie.report.page import write_report
from coterie.report.picks import POINTS, competitive_over_rounds, picked_over_rounds
from coterie.report.records import Study, combine, read_run

from .folder import Made, write_run

MADE = Made(scenarios=((3, 2),), seeds=(1, 2), labels={"ppdl": "ppdl", "dac": "dac"})


def line(label: str, seed: int, done: int, cluster: str, same: float, **more: float) -> dict:
    where = {"label": label, "scenario": "3:2", "seed": seed, "round": done, "cluster": cluster}
    return {"kind": "picked", **where, "same": same, "picks": 6, **more}


def lines(rounds: int) -> list[dict]:
    made = [
        line("ppdl", seed, t, cluster, 0.1 * seed, competitive=50.0, competitive_median=9.0 * seed)
        for seed in (1, 2)
        for t in range(1, rounds + 1)
        for cluster in ("majority", "minority")
    ]
    return [*made, *(line("dac", 1, t, "majority", t / rounds) for t in range(1, rounds + 1))]


def study(folder: Path, records: list[dict]) -> Study:
    write_run(folder, MADE)
    with (folder / "records.jsonl").open("a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in records))
    return combine([read_run(folder)])


def test_each_cluster_has_a_panel_of_shares_with_what_chance_gives(tmp_path: Path) -> None:
    first, second = picked_over_rounds(study(tmp_path, lines(4)))
    assert (first.title, second.title) == ("3:2 · majority", "3:2 · minority")
    curves = {trace.name: trace for trace in first.figure.data if trace.fill is None}
    assert list(curves) == ["ppdl", "dac", "by chance"]
    assert list(curves["ppdl"].y) == pytest.approx([15.0] * 4)  # the mean of two seeds
    assert list(curves["dac"].y) == [25, 50, 75, 100]
    assert list(curves["by chance"].y) == [50, 50]  # two of the other four
    assert [trace.name for trace in second.figure.data if trace.fill is None][-1] == "by chance"
    (band,) = [trace for trace in first.figure.data if trace.fill]
    assert (min(band.y), max(band.y)) == pytest.approx((10, 20))


def test_neighboring_rounds_are_averaged(tmp_path: Path) -> None:
    first, _ = picked_over_rounds(study(tmp_path, lines(5 * POINTS)))
    (dac,) = [trace for trace in first.figure.data if trace.name == "dac"]
    assert len(dac.x) == POINTS and dac.x[0] == 3  # the middle of rounds 1 to 5
    assert dac.y[0] == pytest.approx(100 * 3 / (5 * POINTS))


def test_groups_left_have_a_panel_where_there_are_groups(tmp_path: Path) -> None:
    first, second = competitive_over_rounds(study(tmp_path, lines(4)))
    curves = {trace.name for trace in first.figure.data if trace.fill is None}
    assert curves == {"ppdl"} and first.figure.layout.yaxis.type == "log"
    (line,) = [trace for trace in second.figure.data if trace.fill is None]
    assert list(line.y) == [13.5] * 4
    (band,) = [trace for trace in second.figure.data if trace.fill]
    assert (min(band.y), max(band.y)) == (9, 18)  # from the lowest to the highest seed


def test_the_page_shows_picks_where_there_are_some(tmp_path: Path) -> None:
    write_run(tmp_path / "without", MADE)
    without = write_report([tmp_path / "without"]).read_text(encoding="utf-8")
    assert "Whom nodes picked" not in without and "Groups left" not in without
    study(tmp_path / "with", lines(3))
    text = write_report([tmp_path / "with"]).read_text(encoding="utf-8")
    assert "Whom nodes picked" in text and "Groups left to pick from" in text


@pytest.mark.parametrize("record", [{"kind": "picked"}, line("ppdl", 1, 2, "<b>x</b>", 0.5)])
def test_a_strange_record_spoils_no_page(tmp_path: Path, record: dict) -> None:
    study(tmp_path, [*lines(3), record])
    assert "<b>x" not in write_report([tmp_path]).read_text(encoding="utf-8")


@pytest.mark.skipif(not available(), reason="no matplotlib")
@pytest.mark.parametrize("draw", [picked_over_rounds, competitive_over_rounds])
def test_picks_can_be_printed(tmp_path: Path, draw) -> None:
    made = write_figure(draw(study(tmp_path, lines(4))), tmp_path / "picks")
    assert all(path.stat().st_size > 1000 for path in made)
