"""`coterie reproduce` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie import display
from coterie.reproduce import parts
from tests.contract.command import write
from tests.reproduce.conftest import tiny


def results(folder: Path) -> list[dict[str, Any]]:
    """The results of a run folder, without times."""
    found = json.loads((folder / "summary.json").read_text())["results"]
    return [{k: v for k, v in r.items() if k != "train_seconds"} for r in found]


def test_a_reproduction_puts_ours_beside_the_papers(coterie, here, file):
    outcome = coterie("reproduce", file)
    assert outcome.code == 0 and not outcome.err
    for words in ("EL 4:2", "paper 50.00±1.00 40.00±1.00", "difference", "2 of 2 parts are done"):
        assert words in outcome.out
    for words in ("facade 3:3", "95% interval", "report: runs/reproduce/tiny/report.html"):
        assert words in outcome.out
    folder = here / "runs" / "reproduce" / "tiny"
    assert len(results(folder / "el")) == len(results(folder / "facade")) == 4
    written = {path.name for path in (folder / "tables").iterdir()}
    assert {"beside.md", "beside.csv", "beside.tex", "settlement.md", "seeds.md"} <= written
    assert {"0.1.pdf", "0.1.png", "rate.pdf", "loss.pdf"} <= {
        p.name for p in (folder / "figures").iterdir()
    }
    page = (folder / "report.html").read_text()
    for words in ("Ours beside the paper&#x27;s", "nobody, Table 0", "It is a test.", "Figure 0.1"):
        assert words in page or words.replace("&#x27;", "'") in page


def test_the_csv_has_the_difference_as_numbers(coterie, here, file):
    assert coterie("reproduce", file, "--only", "el").code == 0
    lines = (here / "runs/reproduce/tiny/tables/beside.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    (row,) = [r for r in rows if (r["label"], r["scenario"], r["key"]) == ("EL", "4:2", KEY)]
    assert float(row["difference"]) == pytest.approx(float(row["ours"]) - 50)
    assert row["seeds"] == "2" and row["state"] == "done"
    assert {r["state"] for r in rows if r["label"] == "facade"} == {"open"}


KEY = "accuracy:upright"


def test_what_is_done_is_never_computed_again(coterie, here, file, monkeypatch):
    assert coterie("reproduce", file, "--only", "el").code == 0
    ran = []
    monkeypatch.setattr(parts, "run", lambda config, *rest, **more: ran.append(config))
    assert coterie("reproduce", file, "--only", "el").code == 0
    assert not ran
    outcome = coterie("reproduce", file, "--only", "facade")
    assert [config.experiment.name for config in ran] == ["tiny facade"]
    assert "4 rounds done in " in coterie("reproduce", file, "--list").out
    assert "part 2/2 facade" in coterie("reproduce", file).out
    assert "1 of 2 parts are done" in outcome.out and "open: facade" in outcome.out


def test_a_part_that_stopped_at_its_target_is_done(coterie, here, monkeypatch):
    table = tiny()
    table["evaluate"] |= {"every": 1, "target": 0.5, "stop": True}
    file = write(here / "early.toml", table)
    outcome = coterie("reproduce", file, "--only", "el")
    assert "all seeds at 0.5%, ends after round" in outcome.out
    assert "1 of 2 parts are done" in outcome.out
    assert {r["rounds"] for r in results(here / "runs/reproduce/early/el")} != {4}
    monkeypatch.setattr(parts, "run", lambda *rest, **more: pytest.fail("it ran again"))
    assert coterie("reproduce", file, "--only", "el").code == 0


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Ask for a stop the so-manieth time that a run asks whether to."""
    calls = iter(range(10_000))
    monkeypatch.setattr(display.Display, "over", lambda self: next(calls) >= after)


def test_an_interrupted_reproduction_goes_on_to_the_same_numbers(coterie, here, file, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, 3)  # before the first round, after it, then after the second
        outcome = coterie("reproduce", file, "--out", "stopped")
    assert outcome.code == 0, "the time was over; nobody pressed Ctrl-C"
    assert "go on with: coterie reproduce" in outcome.out and "--out stopped" in outcome.out
    assert "0 of 2 parts are done" in outcome.out
    assert "open: el, 2 of 4 rounds done" in outcome.out and "open: facade" in outcome.out
    assert "part 1/2 el" in outcome.out and "EL: round 2/4" in outcome.out
    assert "EL: round 3/4" not in outcome.out, "what is shown is what is done"
    listed = coterie("reproduce", file, "--out", "stopped", "--list").out
    assert "4 rounds 2 of 4 rounds done" in listed
    assert (here / "stopped" / "tiny" / "report.html").exists()
    assert coterie("reproduce", file, "--out", "stopped").code == 0
    assert coterie("reproduce", file, "--out", "whole").code == 0
    for part in ("el", "facade"):
        assert results(here / "stopped/tiny" / part) == results(here / "whole/tiny" / part)


def test_states_are_only_kept_until_a_part_is_done(coterie, here, file, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        coterie("reproduce", file)
    saved = here / "runs/reproduce/tiny/el/checkpoints"
    assert [path.name for path in saved.glob("*.safetensors")] == ["EL.safetensors"]
    assert coterie("reproduce", file).code == 0
    assert not list(saved.glob("*.safetensors"))


def test_a_fraction_has_its_own_folder(coterie, here, file):
    outcome = coterie("reproduce", file, "--fraction", "0.01", "--seeds", "1", "--only", "el")
    assert outcome.code == 0
    folder = here / "runs" / "reproduce" / "tiny-fraction-0.01-seeds-1"
    assert {(r["seed"], r["rounds"]) for r in results(folder / "el")} == {(5, 2)}
    assert not (here / "runs" / "reproduce" / "tiny").exists()


@pytest.mark.parametrize("minutes", ["-1", "nan", "x"])
def test_there_is_no_less_than_no_time(minutes, coterie, file):
    outcome = coterie("reproduce", file, "--minutes", minutes)
    assert outcome.code == 2 and "--minutes" in outcome.err and "Traceback" not in outcome.err


def test_figures_of_other_experiments_share_their_runs(coterie, here, file):
    figure = {"title": "Figure 0", "uses": ["tiny/el"]}
    figure["figure"] = [{"name": "0", "kind": "accuracy"}]
    write(here / "picture.toml", figure)
    assert coterie("reproduce", file, "--only", "el").code == 0
    outcome = coterie("reproduce", "picture.toml")
    assert outcome.code == 0 and "1 of 1 parts are done" in outcome.out
    folder = here / "runs" / "reproduce" / "picture"
    assert sorted(path.name for path in folder.iterdir()) == ["figures", "report.html", "tables"]


def test_an_edited_experiment_does_not_mix_with_what_was_run(coterie, here, file):
    assert coterie("reproduce", file, "--only", "el").code == 0
    table = tiny()
    table["train"]["lr"] = 0.3
    write(file, table)
    outcome = coterie("reproduce", file, "--only", "el")
    assert outcome.code == 2 and "part 'el'" in outcome.err
    assert "another configuration" in outcome.err


def test_missing_data_are_named_before_anything_runs(coterie, here, file, monkeypatch):
    monkeypatch.setenv("COTERIE_DATA", str(here / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "none"))
    table = tiny()
    table["part"][1]["data"] = {"source": "cifar10"}
    write(file, table)
    outcome = coterie("reproduce", file)
    assert outcome.code == 2 and "'cifar10' not found" in outcome.err
    assert "coterie data get cifar10" in outcome.err
    assert not (here / "runs").exists()
    assert coterie("reproduce", file, "--only", "el").code == 0


def test_the_page_without_any_run_shows_the_papers_numbers(coterie, here, file):
    outcome = coterie("reproduce", file, "--minutes", "0")
    assert outcome.code == 0 and "0 of 2 parts are done" in outcome.out
    assert "EL (open) 4:2" in outcome.out and "paper 50.00±1.00" in outcome.out
    assert "Nothing is done yet." in (here / "runs/reproduce/tiny/report.html").read_text()


def test_experiments_and_their_parts_are_listed(coterie, file):
    outcome = coterie("reproduce", "--list")
    assert outcome.code == 0 and "facade-table-4.2 Table 4.2: CIFAR-10" in outcome.out
    assert coterie("reproduce").out == outcome.out
    assert "four algorithms, three ratios (cifar10)" in outcome.out
    assert "half clothing (fashion-mnist, mnist) mcfl-digits" in outcome.out
    assert "which layers have branches (celeba)" in outcome.out  # uses a part of a file on femnist
    outcome = coterie("reproduce", file, "--list", "--only", "facade")
    assert "facade" in outcome.out and "el 2 scenarios" not in outcome.out
    outcome = coterie("reproduce", file, "--list")
    assert "el 2 scenarios x 2 seeds = 24 rows, 4 rounds open" in outcome.out


@pytest.mark.parametrize(
    "words, message",
    [
        (["facade-tabel-4.2"], "did you mean 'facade-table-4.2'? (coterie reproduce --list)"),
        (["none.toml"], "there is no file 'none.toml'"),
        (["tiny.toml", "--only", "facad"], "unknown part 'facad'; did you mean 'facade'?"),
        (["tiny.toml", "--list", "--only", "facad"], "unknown part 'facad'"),
        (["--only", "el"], "name an experiment"),
        (["tiny.toml", "--fraction", "0"], "--fraction must be above 0 and at most 1, got 0"),
        (["tiny.toml", "--seeds", "-1"], "--seeds must be at least 1, got -1"),
        (["tiny.toml", "--device", "gpu"], "unknown device 'gpu'"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_bad_request_is_one_message(words, message, coterie, file):
    outcome = coterie("reproduce", *words)
    assert outcome.code == 2 and message in outcome.err and "Traceback" not in outcome.err


def test_without_matplotlib_the_command_says_what_is_not_there(coterie, file, monkeypatch):
    from coterie.report import files

    monkeypatch.setattr(files, "available", lambda: False)
    outcome = coterie("reproduce", file, "--only", "el")
    assert outcome.code == 0 and "pip install 'coterie[figures]'" in outcome.out
