from pathlib import Path

import numpy as np
import pytest

from coterie.report import figures
from coterie.report.records import Study, combine, read_run

from .folder import Made, write_run


def study_of(folder: Path, made: Made) -> Study:
    return combine([read_run(write_run(folder, made))])


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return study_of(tmp_path, Made())


def test_each_cluster_has_a_panel_with_a_line_and_a_band_for_each_label(study: Study) -> None:
    panels = figures.accuracy_over_rounds(study)
    assert [p.title for p in panels] == ["14:2 · majority (14 nodes)", "14:2 · minority (2 nodes)"]
    lines = [trace for trace in panels[0].figure.data if trace.fill is None]
    assert [line.name for line in lines] == ["facade", "epidemic"]
    assert len(panels[0].figure.data) == 4


def test_a_line_is_the_mean_over_seeds(study: Study) -> None:
    frame = study.frames["cluster"]
    rows = frame[(frame["label"] == "facade") & (frame["cluster"] == "minority")]
    curve = figures.mean_and_std(rows, "accuracy", "round")
    last = rows[rows["round"] == 20].groupby("seed")["accuracy"].last()
    assert curve["mean"].iloc[-1] == pytest.approx(last.mean())
    assert curve["std"].iloc[-1] == pytest.approx(last.std(ddof=0))


def test_the_final_all_reduce_comes_after_the_round_it_follows(study: Study) -> None:
    rows = study.frames["overall"].head(2).assign(round=5.0, phase=["final", "round"])
    rows = rows.assign(accuracy=[90.0, 80.0])
    assert figures.mean_and_std(rows, "accuracy", "round")["mean"].tolist() == [80, 90]


def test_panels_of_one_unit_share_their_range(study: Study) -> None:
    ranges = {p.figure.layout.yaxis.range for p in figures.accuracy_over_rounds(study)}
    assert len(ranges) == 1


def test_the_thesis_algorithms_keep_their_colours_and_no_colour_is_used_twice(
    tmp_path: Path,
) -> None:
    labels = {"EL": "epidemic", "EL slow": "epidemic", "facade": "facade", "mcfl": "mcfl"}
    looks = figures.looks(study_of(tmp_path, Made(labels=labels)))
    assert looks["EL"].color == "#009B95" and looks["facade"].color == "#E34234"
    assert len({(look.color, look.dash) for look in looks.values()}) == 4


def test_many_labels_still_look_different(tmp_path: Path) -> None:
    labels = {f"try {i}": "facade" for i in range(20)}
    looks = figures.looks(study_of(tmp_path, Made(labels=labels, seeds=(1,))))
    assert len({(look.color, look.dash) for look in looks.values()}) == 20


def test_fairness_has_a_bar_and_a_whisker_for_each_label(study: Study) -> None:
    parity, odds = figures.fairness_bars(study)
    assert [bar.name for bar in parity.figure.data] == ["facade", "epidemic"]
    assert len(odds.figure.data[0].error_y.array) == 1


def test_bytes_are_drawn_in_a_readable_unit_without_the_final_all_reduce(study: Study) -> None:
    overall = study.frames["overall"]
    study.frames["overall"] = overall.assign(
        phase=["final" if t == 20 else "round" for t in overall["round"]]
    )
    (panel,) = figures.accuracy_over_bytes(study)
    assert panel.figure.layout.xaxis.title.text == "MB sent by a node"
    assert max(panel.figure.data[-1].x) == pytest.approx(18 * 1.44)


def test_runs_of_errors_show_errors(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(metric="mse"))
    assert figures.accuracy_over_rounds(study)[0].figure.layout.yaxis.title.text == "MSE"
    assert figures.fair_accuracy_over_rounds(study) == []
    assert figures.fairness_bars(study) == []


def test_a_timeline_counts_the_nodes_of_a_cluster_at_each_head(study: Study) -> None:
    panels = figures.choice_timelines(study)
    assert panels[0].row == "facade · 14:2 · seed 1 · settled"
    counts = np.array([trace.y for trace in panels[0].figure.data])
    assert (counts.sum(axis=0) == 14).all()
    assert panels[0].figure.data[0].x[-1] == 20  # the last choice is held to the end


def test_the_matrix_shows_the_last_choice(study: Study) -> None:
    panel = figures.choice_matrices(study)[0]
    assert np.array(panel.figure.data[0].z).tolist() == [[14, 0], [0, 2]]


def test_algorithms_without_heads_have_no_timeline(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(labels={"epidemic": "epidemic"}))
    assert figures.choice_timelines(study) == [] and figures.choice_matrices(study) == []


def test_empty_records_draw_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made())
    (folder / "records.jsonl").write_text("")
    study = combine([read_run(folder)])
    assert figures.accuracy_over_rounds(study) == []
    assert figures.fair_accuracy_over_rounds(study) == []
    assert figures.accuracy_over_bytes(study) == []
    assert figures.choice_timelines(study) == []


def test_thinning_keeps_both_ends() -> None:
    kept = figures.thin(np.arange(1000), 50)
    assert len(kept) == 50 and kept[0] == 0 and kept[-1] == 999


def test_labels_are_text_to_plotly(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(labels={"<b>x</b>": "facade"}))
    names = {t.name for p in figures.accuracy_over_rounds(study) for t in p.figure.data}
    assert "&lt;b&gt;x&lt;/b&gt;" in names
