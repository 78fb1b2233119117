import json
from pathlib import Path

import pytest

from coterie.errors import InputError
from coterie.report.records import COLUMNS, combine, read_frames, read_run

from .folder import Made, write_run


def test_a_run_is_read_into_one_frame_for_each_kind(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", Made()))
    assert set(run.frames) == set(COLUMNS)
    assert run.summary.order == ["facade", "epidemic"]
    assert run.environment["device"] == "cpu" and "digits" in run.config
    assert set(run.frames["cluster"]["cluster"]) == {"majority", "minority"}
    assert run.frames["choice"]["clusters"].map(len).eq(16).all()


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made())
    whole = len(read_frames(folder)["cluster"])
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"kind": "cluster", "label": "fac')
    assert len(read_frames(folder)["cluster"]) == whole


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made())
    (folder / "records.jsonl").write_text('{"kind": "node"}\n{broken\n{"kind": "node"}\n')
    with pytest.raises(InputError, match="line 2 is not JSON"):
        read_frames(folder)


def test_a_run_without_records_has_empty_frames_with_columns(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made())
    (folder / "records.jsonl").write_text("")
    frames = read_frames(folder)
    assert frames["overall"].empty and "fair_accuracy" in frames["overall"]


def test_a_folder_of_run_folders_names_them(tmp_path: Path) -> None:
    for name in ("el", "facade"):
        write_run(tmp_path / name, Made())
    with pytest.raises(InputError, match=r"no run folder, but has some in it \(el, facade\)"):
        read_run(tmp_path)


def test_a_missing_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run folder at"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name", ["config.toml", "environment.json", "summary.json", "records.jsonl"]
)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path, Made())
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"no {name} in"):
        read_run(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"name": "x"}', "results: field required"),
        ('{"name": "x", "results": [{"label": 3}]}', r"results\.0\.label"),
    ],
)
def test_a_summary_that_is_not_one_is_refused(tmp_path: Path, text: str, message: str) -> None:
    folder = write_run(tmp_path, Made())
    (folder / "summary.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_run(folder)


def test_values_of_a_wrong_type_do_not_enter_the_frames(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made())
    hostile = [
        {"kind": "choice", "label": "facade", "round": 1, "choice": [10**12, "x"]},
        {"kind": "cluster", "label": ["a"], "round": "<b>", "accuracy": "high"},
        ["not a record"],
    ]
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in hostile))
    frames = read_frames(folder)
    assert frames["choice"]["choice"].tolist() == [[]]
    assert frames["cluster"]["accuracy"].isna().all()


def test_runs_with_different_labels_are_put_side_by_side(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", Made(labels={"facade": "facade"}))
    two = write_run(tmp_path / "two", Made(name="more", labels={"dac": "dac"}))
    study = combine([read_run(one), read_run(two)])
    assert study.order == ["facade", "dac"] and study.name == "digits + more"
    assert set(study.frames["overall"]["label"]) == {"facade", "dac"}


def test_a_label_of_two_runs_on_the_same_data_gets_the_runs_name(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name, Made(name=name))) for name in ("old", "new")]
    study = combine(runs)
    assert study.order == ["facade [old]", "epidemic [old]", "facade [new]", "epidemic [new]"]
    assert set(study.frames["choice"]["label"]) == {"facade [old]", "facade [new]"}


def test_runs_of_the_same_name_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name, Made())) for name in ("monday", "tuesday")]
    assert combine(runs).order[0] == "facade [monday]"


def test_no_run_at_all_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no run folder given"):
        combine([])
