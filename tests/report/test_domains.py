"""What a server noted of FedCG's domains, drawn and in a table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from coterie.report.domains import domain_shares, entropies, notes_table, scales
from coterie.report.page import write_report
from coterie.report.records import Study, combine, read_run

from .folder import Made, write_run

MADE = Made(scenarios=((2, 1),), seeds=(1, 2), labels={"FedCG": "fedcg", "FedAvg": "fedavg"})


def note(seed: int, t: int, name: str, values: object) -> dict[str, object]:
    place = {"label": "FedCG", "scenario": "2:1", "seed": seed}
    return {"kind": "note", **place, "round": t, "name": name, "values": values}


LINES = [
    *(note(1, t, "domains", [1, 3]) for t in (1, 2)),
    *(note(2, t, "domains", [6, 2]) for t in (1, 2)),
    note(1, 1, "entropy", [0.2]),
    note(2, 1, "entropy", [0.4]),
    note(1, 1, "lambda conv1", [1.0]),
    note(2, 1, "lambda conv1", [2.0]),
    note(1, 1, "lambda <b>", [5.0]),
    note(1, 3, "domains", "many"),
    note(1, 3, "entropy", [None]),
]


def write(folder: Path) -> Path:
    write_run(folder, MADE)
    with (folder / "records.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in LINES)
    summary = json.loads((folder / "summary.json").read_text())
    for result in summary["results"]:
        if result["label"] == "FedCG":
            result["notes"] = {"entropy": 0.2 * result["seed"], "lambda conv1": None}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return combine([read_run(write(tmp_path))])


def test_shares_are_ranked_within_each_seed(study: Study) -> None:
    (panel,) = domain_shares(study)
    assert panel.title == "FedCG · 2:1"
    largest, smallest = panel.figure.data
    assert list(largest.x) == [1, 2] and list(largest.y) == [75, 75]
    assert list(smallest.y) == [25, 25] and smallest.name == "domain 2"


def test_rounds_are_counted_together_where_there_are_many(study: Study) -> None:
    more = [note(1, t, "domains", [t % 2, 1]) for t in range(1, 201)]
    rows = study.frames["note"].iloc[:0]
    frame = rows.reindex(range(len(more))).assign(**{k: [m[k] for m in more] for k in rows})
    study.frames["note"] = frame
    (panel,) = domain_shares(study)
    assert len(panel.figure.data[0].x) == 50 and panel.figure.data[0].x[-1] == 200
    assert set(panel.figure.data[0].y) == {66.67}


def test_entropy_and_lambda_are_means_over_seeds(study: Study) -> None:
    (entropy,) = entropies(study)
    assert entropy.figure.data[-1].y[0] == pytest.approx(0.3)
    (scale,) = scales(study)
    lines = {trace.name: trace.y for trace in scale.figure.data if trace.name}
    assert lines["conv1"] == (1.5,) and "&lt;b&gt;" in lines, "names are shown as they are"


def test_the_table_has_what_was_noted_in_the_end(study: Study) -> None:
    table = notes_table(study)
    assert table.header == ["algorithm", "scenario", "entropy", "lambda conv1"]
    ((label, _, entropy, unknown),) = table.rows
    assert label.text == "FedCG" and unknown.text == "–"
    assert entropy.text.startswith("0.300") and math.isclose(float(entropy.value or 0), 0.3)


def test_the_page_shows_domains_where_there_are_any(tmp_path: Path) -> None:
    page = write_report([write(tmp_path / "with")]).read_text()
    assert "The domains of samples" in page and "Noted in the end" in page
    assert (tmp_path / "with" / "tables" / "notes.md").exists()
    without = write_report([write_run(tmp_path / "without", MADE)]).read_text()
    assert "The domains of samples" not in without and "Noted in the end" not in without
