"""The family of models in the run folder: the same in every runtime, and anybody can check it."""

from __future__ import annotations

import json

import pytest

from tests.contract.command import tiny, write

TINY = tiny(
    experiment={"name": "tiny", "seeds": [1, 2], "rounds": 4},
    data__holdout=0.2,
    train={"steps": 2, "precision": "float64"},
    algorithm=[{"name": "mcfl", "tolerance": 1.0}, {"name": "fedavg-p2p"}],
)


def lines(folder):
    return [json.loads(line) for line in (folder / "dag.jsonl").read_text().splitlines()]


def models(folder):
    return [line for line in lines(folder) if line["kind"] == "model"]


@pytest.fixture
def ran(coterie, here):
    done = coterie("run", write(here / "a.toml", TINY), "--out", "a", "--device", "cpu")
    assert done.code == 0, done.err
    return here / "a"


def test_a_run_writes_its_family_and_the_command_computes_every_id_again(coterie, ran):
    found = models(ran)
    assert {line["seed"] for line in found} == {1, 2} and {m["label"] for m in found} == {"mcfl"}
    assert [len([m for m in found if m["born"] == 1 and m["seed"] == s]) for s in (1, 2)] == [6, 6]
    assert all(m["extinct"] is None or m["extinct"] > m["born"] for m in found)
    done = coterie("dag", ran)
    assert done.code == 0 and f"{len(found)} ids were computed again: all are right" in done.out
    result = json.loads((ran / "summary.json").read_text())["results"]
    alive = [m for m in found if m["born"] == 4 and m["seed"] == 1]
    assert [r["models"] for r in result] == [len(alive), result[1]["models"], None, None]
    assert '"kind": "model"' not in (ran / "records.jsonl").read_text()


def test_a_false_id_is_found(coterie, ran):
    whole = lines(ran)
    model = next(line for line in whole if line["kind"] == "model" and len(line["updates"]) == 1)
    model["updates"] = [(model["updates"][0] + 1) % 6]
    (ran / "dag.jsonl").write_text("".join(json.dumps(line) + "\n" for line in whole))
    done = coterie("dag", ran)
    assert done.code == 2 and "has a false id" in done.err


def test_the_family_is_the_same_as_one_block_and_over_frames(coterie, ran, here):
    over = TINY | {"runtime": {"link": "memory"}}
    assert coterie("run", write(here / "b.toml", over), "--out", "b", "--device", "cpu").code == 0
    key = ("seed", "born", "id")
    mine, other = (
        sorted(models(folder), key=lambda m: [m[k] for k in key]) for folder in (ran, here / "b")
    )
    assert mine == other


def test_a_longer_run_goes_on_with_its_family(coterie, ran, here):
    more = ["--set", "experiment.rounds=6"]
    file = write(here / "c.toml", TINY)
    assert coterie("run", file, *more, "--out", "c", "--device", "cpu").code == 0
    assert coterie("run", file, *more, "--out", "a", "--device", "cpu", "--resume").code == 0
    assert lines(ran) == lines(here / "c")


@pytest.mark.parametrize(
    ("content", "message"), [(None, "there is no dag.jsonl"), ("{", "cannot read"), ("3", "cannot")]
)
def test_a_folder_without_a_readable_family_is_one_message(coterie, here, content, message):
    if content:
        (here / "dag.jsonl").write_text(content)
    done = coterie("dag", here)
    assert done.code == 2 and message in done.err


def test_the_report_draws_the_family(ran):
    page = (ran / "report.html").read_text()
    assert "The family of models" in page and "Who follows which model" in page
    assert "Which head or model nodes prefer" not in page
