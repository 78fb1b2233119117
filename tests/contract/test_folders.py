"""Run folders in use, of another run, damaged, or on a full disk: one message, exit code 2."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coterie.runtimes.lock import locked
from tests.contract.command import refused, tiny, write


def test_a_folder_that_is_not_empty_is_left_alone(coterie, here):
    file = write(here / "good.toml", tiny())
    (here / "out").mkdir()
    (here / "out" / "thesis.tex").write_text("precious")
    refused(coterie("run", file, "--out", "out"), "'out' is not empty", "--resume")
    assert [path.name for path in (here / "out").iterdir()] == ["thesis.tex"]


def test_an_empty_folder_may_be_used(coterie, here):
    (here / "out").mkdir()
    assert coterie("run", write(here / "good.toml", tiny()), "--out", "out").code == 0


def test_a_folder_below_a_file_cannot_be_written(coterie, here):
    file = write(here / "good.toml", tiny())
    below = coterie("run", file, "--out", file / "out")
    refused(below, "cannot write", "Not a directory", "--out")
    assert "saved" not in below.err
    refused(coterie("run", file, "--out", file), "good.toml' is a file", "--out")


def test_there_must_be_a_run_to_resume(coterie, here):
    file = write(here / "good.toml", tiny())
    refused(coterie("run", file, "--resume"), "--resume needs --out")
    refused(coterie("run", file, "--resume", "--out", "out"), "no run to resume in 'out'")
    refused(coterie("run", "--resume", "--out", "out"), "no run to resume in 'out'")


def test_another_configuration_is_not_resumed(coterie, here):
    file = write(here / "good.toml", tiny())
    assert coterie("run", file, "--out", "out").code == 0
    before = (here / "out" / "summary.json").read_bytes()
    again = coterie("run", file, "--out", "out", "--resume", "--set", "train.lr=0.3")
    refused(again, "another configuration", "experiment.rounds")
    fewer = coterie("run", file, "--out", "out", "--resume", "--set", "experiment.rounds=1")
    refused(fewer, "2 rounds", "resume can only add some")
    assert (here / "out" / "summary.json").read_bytes() == before


DAMAGED = {  # a file of a run folder -> what is in it instead, and what the message has to say
    "epidemic.safetensors": ("no tensors here", ["checkpoint", "cannot be read", "delete it"]),
    "epidemic.done.json": ("{", ["cannot be read", "delete it"]),
    "epidemic.jsonl": ("{}\n", ["records", "line 1 is no record", "epidemic.safetensors"]),
    "plan.json": ("[", ["plan", "cannot be read", "delete"]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(name, coterie, here):
    file = write(here / "good.toml", tiny())
    assert coterie("run", file, "--out", "out").code == 0
    text, fragments = DAMAGED[name]
    (here / "out" / "checkpoints" / name).write_text(text)
    longer = coterie("run", file, "--out", "out", "--resume", "--set", "experiment.rounds=3")
    refused(longer, name, *fragments)


@pytest.mark.parametrize("text", ["{}", "[]", '{"rounds": 2}'])
def test_so_is_one_that_lacks_something(text, coterie, here):
    file = write(here / "good.toml", tiny())
    assert coterie("run", file, "--out", "out").code == 0
    (here / "out" / "checkpoints" / "epidemic.done.json").write_text(text)
    refused(coterie("run", "--out", "out", "--resume"), "epidemic.done.json", "cannot be read")


def test_one_process_works_in_a_folder_at_a_time(coterie, here):
    file = write(here / "good.toml", tiny())
    assert coterie("run", file, "--out", "out").code == 0
    before = (here / "out" / "config.toml").stat().st_mtime_ns
    with locked(here / "out"):
        refused(coterie("run", "--out", "out", "--resume"), "another process", "'out'")
    assert (here / "out" / "config.toml").stat().st_mtime_ns == before
    assert coterie("run", "--out", "out", "--resume").code == 0


@contextmanager
def small_disk(limit: int) -> Iterator[None]:
    """No file can grow beyond a limit: what a full disk looks like."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limit", [100, 1500, 4000], ids=["config", "checkpoint", "models"])
def test_a_full_disk_loses_nothing(limit, coterie, here):
    file = write(here / "good.toml", tiny(experiment__rounds=4))
    with small_disk(limit):
        advice = "--resume" if limit > 1000 else "choose another --out"
        refused(coterie("run", file, "--out", "out"), "cannot write", advice)
    assert not list((here / "out").rglob("*.tmp"))
    resumed = coterie("run", file, "--out", "out", "--resume")
    if limit > 1000:
        assert resumed.code == 0


@pytest.mark.parametrize("words", [["report"], ["report", "absent"], ["report", "."]], ids=str)
def test_a_report_needs_a_run_folder(words, coterie):
    outcome = coterie(*words)
    assert outcome.code == 2 and "Traceback" not in outcome.err and outcome.err
