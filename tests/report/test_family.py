"""The family of models, drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.report import family
from coterie.report.family import COLORS, family_panels
from coterie.report.files import available, write_figure
from coterie.report.page import write_report
from coterie.report.records import Study, combine, read_run

from .folder import Made, write_run


def model(born: int, name: str, parent: str, followers: list[int], **more: object) -> dict:
    place = {"label": "facade", "scenario": "2:1", "seed": 1}
    who = {"updates": followers, "followers": followers, "popularity": 2.0, "extinct": None}
    return {"kind": "model", **place, "born": born, "id": name, "parent": parent, **who, **more}


LINES = [
    model(1, "a", "root", [0, 1]),
    model(1, "b", "root", [2]),
    model(2, "c", "a", [0]),
    model(2, "d", "a", [1, 2]),
]


def study(folder: Path, lines: list[dict]) -> Study:
    made = Made(scenarios=((2, 1),), seeds=(1,), labels={"facade": "facade"})
    write_run(folder, made)
    (folder / "dag.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return combine([read_run(folder)])


def test_a_camp_keeps_its_colour_and_others_have_another(tmp_path: Path) -> None:
    followers, alive, events = family_panels(study(tmp_path, LINES))
    shown = {
        name.split(" · ")[1]: row
        for name, row in zip(followers.figure.data[0].y, followers.figure.data[0].z, strict=True)
    }
    assert shown["0"][0] == shown["1"][0] == shown["1"][1] == shown["2"][1]
    assert len({shown["0"][0], shown["2"][0]}) == len({shown["0"][1], shown["1"][1]}) == 2
    assert list(alive.figure.data[0].y) == [2, 2]
    assert {trace.name: list(trace.y) for trace in events.figure.data} == {
        "forks": [1],
        "mergers": [1],
        "extinct": [1],
    }


def test_as_many_camps_as_there_are_colours_are_told_apart() -> None:
    table = np.arange(len(COLORS))[:, None]
    assert len(set(family._colors(table).values())) == len(COLORS)
    more = np.arange(3 * len(COLORS))[:, None]
    assert set(family._colors(more).values()) == set(range(len(COLORS)))


def test_the_page_draws_the_family_instead_of_heads(tmp_path: Path) -> None:
    study(tmp_path, LINES)
    text = write_report([tmp_path]).read_text(encoding="utf-8")
    assert "The family of models" in text and "Which head or model nodes prefer" not in text


@pytest.mark.parametrize(
    "line",
    [model(1, "<b>x</b>", "y", [0]), {"kind": "model"}, model(1, "a", "b", [0], popularity="x")],
)
def test_a_strange_line_spoils_no_page(tmp_path: Path, line: dict) -> None:
    study(tmp_path, [*LINES, line])
    assert "<b>x" not in write_report([tmp_path]).read_text(encoding="utf-8")


@pytest.mark.skipif(not available(), reason="no matplotlib")
def test_the_family_can_be_printed(tmp_path: Path) -> None:
    made = write_figure(family_panels(study(tmp_path, LINES)), tmp_path / "family")
    assert all(path.stat().st_size > 1000 for path in made)
