import json
from pathlib import Path

import pytest

from coterie.report.lacking import lacking
from coterie.report.page import write_report
from coterie.report.records import read_run

from .folder import Made, write_run

WHOLE = """
[experiment]
rounds = {rounds}
seeds = [1, 2, 3]

[evaluate]
stop = {stop}
"""


def lacks(folder: Path, text: str, **changes: object) -> list[str]:
    """What is told of a run folder with this configuration and these changes of all its results."""
    write_run(folder, Made())
    (folder / "config.toml").write_text(text)
    summary = json.loads((folder / "summary.json").read_text())
    for result in summary["results"]:
        result.update(changes)
    (folder / "summary.json").write_text(json.dumps(summary))
    return lacking(read_run(folder))


def whole(rounds: int, stop: str = "false") -> str:
    return WHOLE.format(rounds=rounds, stop=stop)


def test_a_run_that_came_to_its_end_lacks_nothing(tmp_path: Path) -> None:
    assert lacks(tmp_path, whole(20), rounds=20) == []


def test_a_run_that_was_stopped_says_how_far_it_is_also_on_its_page(tmp_path: Path) -> None:
    (told,) = lacks(tmp_path, whole(20), rounds=7)
    assert told.endswith(
        "is not finished: facade after 7 of 20 rounds, epidemic after 7 of 20 rounds."
    )
    assert told in write_report([tmp_path]).read_text()


def test_a_run_that_ended_at_its_target_is_finished(tmp_path: Path) -> None:
    assert lacks(tmp_path, whole(20, "true"), rounds=7, rounds_to_target=6.5) == []


def test_a_run_whose_seeds_ended_apart_is_finished_once_each_is_at_its_end(tmp_path: Path) -> None:
    lacks(tmp_path, whole(20, "true"), rounds=20)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for result in summary["results"][::2]:
        result.update(rounds=7, rounds_to_target=6.5)
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert lacking(read_run(tmp_path)) == []


def test_algorithms_and_seeds_that_have_not_begun_are_named(tmp_path: Path) -> None:
    (told,) = lacks(tmp_path, whole(20).replace("3]", "3, 4]"), rounds=20, label="facade")
    assert "facade with 6 of 4 runs" not in told and "epidemic has not begun" in told
    (told,) = lacks(tmp_path / "more", whole(20).replace("3]", "3, 4]"), rounds=20)
    assert "facade with 3 of 4 runs, epidemic with 3 of 4 runs" in told


def test_peers_that_are_not_there_are_named(tmp_path: Path) -> None:
    assert lacks(tmp_path, whole(20), rounds=20, missing=[1, 4]) == [
        "Without peers 1, 4: gone before the end, or not among the folders."
    ]


@pytest.mark.parametrize("text", ["[experiment", "experiment = 3", "[experiment]\nrounds = 'x'"])
def test_a_configuration_that_cannot_be_read_says_nothing(text: str, tmp_path: Path) -> None:
    assert lacks(tmp_path, text, rounds=7) == []
