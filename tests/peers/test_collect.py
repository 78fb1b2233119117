"""One summary out of what peers wrote down, however far each of them came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.config import Config
from coterie.errors import InputError
from coterie.peers.collect import Collection, read_story, write_summary
from coterie.peers.diary import NAME
from coterie.peers.home import OWNER
from coterie.peers.together import together

CONFIG = Config(
    data={"clusters": [{"name": "a", "nodes": 2}, {"name": "b", "nodes": 1}]},
    algorithm=[{"name": "facade"}],
)


def member(node: int, cluster: str) -> dict[str, Any]:
    return {
        "kind": "member",
        "node": node,
        "cluster": cluster,
        "label": "facade",
        "scenario": "2:1",
        "seed": 1,
        "algorithm": "facade",
        "oracle": False,
        "heads": 2,
        "parity_reason": None,
    }


def score(done: int, right: int, phase: str = "round") -> dict[str, Any]:
    confusion = [[right, 10 - right], [0, 10]]
    where = {"round": done, "phase": phase}
    return {"kind": "score", **where, "loss": 0.5, "confusion": confusion, "bytes": 100 * done}


def choice(done: int, head: int) -> dict[str, Any]:
    return {"kind": "choice", "round": done, "choice": head}


def end(done: int, finished: bool = True, late: int = 0) -> dict[str, Any]:
    sent = 100 * done + late
    return {"kind": "end", "round": done, "bytes": sent, "seconds": 2.0, "finished": finished}


def folder(path: Path, *records: dict[str, Any], torn: str = "") -> Path:
    (path / "checkpoints").mkdir(parents=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (path / "checkpoints" / NAME).write_text(lines + torn)
    return path


def stories(tmp_path: Path, *diaries: list[dict[str, Any]]) -> list[Any]:
    folders = [folder(tmp_path / str(number), *diary) for number, diary in enumerate(diaries)]
    return [story for story in map(read_story, folders) if story is not None]


def test_everybody_is_in_the_last_evaluation(tmp_path):
    found = stories(
        tmp_path,
        [member(0, "a"), choice(1, 0), score(1, 0), score(2, 10), end(2)],
        [member(1, "b"), choice(1, 0), score(1, 0), choice(2, 1), score(2, 8), end(2)],
        [member(2, "a"), choice(1, 0), score(1, 0), score(2, 6), end(2)],
    )
    (result,) = Collection(CONFIG, found).results()
    assert result["accuracy"] == {"a": 90.0, "b": 90.0} and result["rounds"] == 2
    assert result["nodes"] == 3 and result["missing"] == [] and result["bytes_per_node"] == 200
    assert result["settled"] and result["first_settled_round"] == 2


def test_who_died_is_missing_and_the_others_count(tmp_path):
    found = stories(
        tmp_path,
        [member(0, "a"), score(1, 10), score(2, 10), end(2)],
        [member(1, "b"), score(1, 0)],
        [member(2, "a"), score(1, 10), score(2, 10), end(2)],
    )
    collection = Collection(CONFIG, found)
    (result,) = collection.results()
    assert result["missing"] == [1] and result["nodes"] == 2 and set(result["accuracy"]) == {"a"}
    nodes = [(r["round"], r["node"]) for r in collection.records() if r["kind"] == "node"]
    assert nodes == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 2)]


def test_peers_that_stopped_apart_are_compared_where_all_were(tmp_path):
    found = stories(
        tmp_path,
        [member(0, "a"), score(1, 10), score(2, 0), end(2, finished=False)],
        [member(1, "b"), score(1, 10), end(1, finished=False)],
    )
    (result,) = Collection(CONFIG, found).results()
    assert result["rounds"] == 1 and result["accuracy_all"] == 100


def test_choices_are_rows_once_all_have_chosen(tmp_path):
    found = stories(
        tmp_path,
        [member(0, "a"), choice(1, 0), choice(5, 1)],
        [member(1, "b"), choice(3, 1)],
    )
    rows = [r for r in Collection(CONFIG, found).records() if r["kind"] == "choice"]
    assert [(r["round"], r["choice"]) for r in rows] == [(3, [0, 1]), (5, [1, 1])]


def test_a_final_all_reduce_is_no_training_traffic(tmp_path):
    diary = [member(0, "a"), score(2, 5), score(2, 10, "final"), end(2)]
    diary[2]["bytes"] = 10**9
    (result,) = Collection(CONFIG, stories(tmp_path, diary)).results()
    assert result["accuracy_all"] == 100 and result["bytes_per_node"] == 200
    assert result["before_all_reduce"]["accuracy_all"] == 75


def test_what_was_answered_to_slower_peers_after_the_last_round_counts(tmp_path):
    diaries = [[member(n, "a"), score(2, 10), end(2, late=30 * n)] for n in (0, 1)]
    (result,) = Collection(CONFIG, stories(tmp_path, *diaries)).results()
    assert result["bytes_per_node"] == (200 + 230) / 2
    stopped = [member(2, "a"), score(1, 10), end(1, finished=False, late=50)]
    (result,) = Collection(CONFIG, stories(tmp_path / "stopped", stopped)).results()
    assert result["bytes_per_node"] == 100


def test_a_server_is_no_node_but_its_bytes_count(tmp_path):
    found = stories(
        tmp_path, [member(-1, ""), end(2, late=7)], [member(0, "a"), score(2, 10), end(2)]
    )
    (result,) = Collection(CONFIG, found).results()
    assert result["nodes"] == 1 and result["server_bytes"] == 207


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path):
    path = folder(tmp_path / "p", member(0, "a"), score(1, 10), torn='{"kind": "sco')
    story = read_story(path)
    assert story is not None and list(story.scores) == [(1, "round")]


def test_nobody_who_began_is_an_empty_summary(tmp_path):
    assert read_story(tmp_path) is None
    assert write_summary(tmp_path, CONFIG, [], [])["results"] == []
    assert (tmp_path / "records.jsonl").read_text() == ""


def picked(done: int, *peers: int, competitive: int | None = None) -> dict[str, Any]:
    return {"kind": "picked", "round": done, "peers": list(peers), "competitive": competitive}


def test_whom_peers_picked_is_set_against_their_clusters(tmp_path):
    found = stories(
        tmp_path,
        [member(0, "a"), picked(1, 1, 2, competitive=8), picked(2, 1, competitive=4)],
        [member(1, "a"), picked(1, 0, competitive=6)],
        [member(2, "b"), picked(1, 0, 3, competitive=5)],  # nobody knows anything of peer 3
    )
    rows = [r for r in Collection(CONFIG, found).records() if r["kind"] == "picked"]
    assert [(r["round"], r["cluster"], r["same"], r["picks"]) for r in rows] == [
        (1, "a", 2 / 3, 3),
        (1, "b", 0.0, 1),
        (2, "a", 1.0, 1),
    ]
    assert [r["competitive"] for r in rows] == [7, 5, 4]
    assert rows[0]["label"] == "facade" and rows[0]["seed"] == 1


def test_picks_without_groups_say_nothing_about_groups(tmp_path):
    found = stories(tmp_path, [member(0, "a"), picked(1, 1)], [member(1, "a"), picked(1)])
    (row,) = [r for r in Collection(CONFIG, found).records() if r["kind"] == "picked"]
    assert row["same"] == 1 and "competitive" not in row


def test_what_a_server_noted_is_in_the_records_and_the_result(tmp_path):
    place = {"label": "facade", "scenario": "2:1", "seed": 1}
    notes = [
        {"kind": "note", **place, "round": t, "name": name, "values": values}
        for t in (1, 2)
        for name, values in (("entropy", [0.5 * t]), ("domains", [3, t]))
    ]
    found = stories(
        tmp_path,
        [member(0, "a"), score(2, 10), end(2)],
        [{**member(-1, ""), "cluster": None}, *notes, end(2)],
    )
    made = Collection(CONFIG, found)
    assert [record for record in made.records() if record["kind"] == "note"] == notes
    assert made.results()[0]["notes"] == {"entropy": 1.0}


def peer_folder(path: Path, node: int, run: str = "aa") -> Path:
    folder(path, member(node, "b" if node == 2 else "a"), score(1, 5 + node), end(1))
    (path / OWNER).write_text(json.dumps({"id": node, "run": run}))
    (path / "config.toml").write_text(CONFIG.to_toml())
    (path / "environment.json").write_text("{}")
    return path


def test_folders_of_peers_of_one_run_become_one_run_folder(tmp_path):
    folders = [peer_folder(tmp_path / str(node), node) for node in range(3)]
    out = together(folders, tmp_path / "all")
    (result,) = json.loads((out / "summary.json").read_text())["results"]
    assert (result["label"], result["nodes"], set(result["accuracy"])) == ("facade", 3, {"a", "b"})
    assert together(folders, out) == out, "once more, as the run goes on"


def test_peers_whose_folders_were_not_given_are_missing(tmp_path):
    folders = [peer_folder(tmp_path / str(node), node) for node in (0, 2)]
    out = together(folders, tmp_path / "some")
    (result,) = json.loads((out / "summary.json").read_text())["results"]
    assert result["nodes"] == 2 and result["missing"] == [1]


def test_folders_of_other_runs_are_left_as_they_are(tmp_path):
    one, other = peer_folder(tmp_path / "0", 0), peer_folder(tmp_path / "1", 1, run="bb")
    (tmp_path / "simulated").mkdir()
    assert together([one, other, tmp_path / "simulated"], None) is None


def test_folders_of_peers_that_cannot_be_one_run_are_refused(tmp_path):
    one, two = peer_folder(tmp_path / "0", 0), peer_folder(tmp_path / "1", 1)
    (tmp_path / "simulated").mkdir()
    with pytest.raises(InputError, match=r"peers of one run; .* coterie report .*0 .*1 --out DIR"):
        together([one, two, tmp_path / "simulated"], None)
    with pytest.raises(InputError, match=r"of one peer; got those of \[0, 0\]"):
        together([one, one], tmp_path / "all")
    with pytest.raises(InputError, match="choose another"):
        together([one, two], one)
