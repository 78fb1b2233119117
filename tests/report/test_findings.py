import json
from pathlib import Path

from coterie.report.findings import findings
from coterie.report.records import combine, read_run

from .folder import Made, write_run


def told(folder: Path, made: Made) -> list[str]:
    return findings(combine([read_run(write_run(folder, made))]))


def test_the_finding_says_how_the_minority_is_served(tmp_path: Path) -> None:
    (text,) = told(tmp_path, Made())
    assert text.startswith("The minority (2 of 16 nodes) gets 92.8% under facade and 82.8% under")
    assert "Best fair accuracy: facade (95.2%" in text
    assert "Settled: facade in 2 of 3 seeds." in text


def test_the_finding_says_why_a_seed_did_not_settle(tmp_path: Path) -> None:
    (text,) = told(tmp_path, Made())
    assert text.endswith("2 of 3 seeds. facade, seed 3: never settled: they share head 0.")
    two = {"facade": "facade", "other": "facade", "third": "facade", "last": "facade"}
    assert told(tmp_path / "more", Made(labels=two))[0].endswith("head 0. (1 more below.)")


def test_more_than_two_clusters_have_a_gap(tmp_path: Path) -> None:
    made = Made(scenarios=((10, 4, 2),), clusters=("A", "B", "C"))
    (text,) = told(tmp_path, made)
    assert "Best and worst cluster are apart, points: 4.0 under facade and 21.9 under" in text
    assert "apart" not in told(tmp_path / "two", Made())[0]


def test_who_knows_the_clusters_is_never_called_the_best(tmp_path: Path) -> None:
    labels = {"told": "oracle", "facade": "facade", "epidemic": "epidemic"}
    (text,) = told(tmp_path, Made(labels=labels, oracles=["told"]))
    assert "under told (knows the clusters)" in text
    assert "Best fair accuracy: facade" in text


def test_who_diverged_is_never_called_the_best(tmp_path: Path) -> None:
    path = write_run(tmp_path, Made()) / "summary.json"
    summary = json.loads(path.read_text())
    next(r for r in summary["results"] if r["label"] == "facade")["diverged"] = 1
    path.write_text(json.dumps(summary))
    lost, text = findings(combine([read_run(tmp_path)]))
    assert lost.startswith("Diverged") and "facade (14:2): seed 1 (1 of 16 nodes)" in lost
    assert "Best" not in text


def test_overlapping_intervals_are_said_to_overlap(tmp_path: Path) -> None:
    assert "though the 95% intervals of the best two overlap" in told(tmp_path, Made())[0]
    assert "from too few seeds to be sure" in told(tmp_path, Made(seeds=(1,)))[0]


def test_equal_clusters_have_no_minority(tmp_path: Path) -> None:
    assert told(tmp_path, Made(scenarios=((8, 8),)))[0].startswith("The average node gets")


def test_several_scenarios_are_named(tmp_path: Path) -> None:
    texts = told(tmp_path, Made(scenarios=((8, 8), (14, 2))))
    assert [text.split(": ")[0] for text in texts] == ["8:8", "14:2"]


def test_many_labels_are_told_as_a_range(tmp_path: Path) -> None:
    labels = {name: name for name in ("facade", "epidemic", "dac", "deprl", "ifca")}
    assert (
        "gets from 52.9% under ifca to 92.8% under facade."
        in told(tmp_path, Made(labels=labels))[0]
    )


def test_many_scenarios_are_cut_short(tmp_path: Path) -> None:
    made = Made(scenarios=tuple((16 - i, i) for i in range(1, 9)), seeds=(1,), every=10)
    texts = told(tmp_path, made)
    assert len(texts) == 7 and texts[-1] == "2 more scenarios are in the table."


def test_errors_are_told_as_errors(tmp_path: Path) -> None:
    text = told(tmp_path, Made(metric="mse", clusters=("plant A", "plant B")))[0]
    assert "The minority, plant B (2 of 16 nodes) has a mean squared error of" in text
    assert "Best mean squared error: facade" in text
