from pathlib import Path

import pandas as pd

from coterie.report.records import Study, combine, read_run
from coterie.report.tables import (
    by_metric,
    nodes_table,
    pairs_table,
    results_table,
    seeds_table,
    to_csv,
    to_latex,
    to_markdown,
)

from .folder import Made, write_run


def study_of(folder: Path, made: Made) -> Study:
    return combine([read_run(write_run(folder, made))])


def test_a_row_holds_a_labels_mean_and_spread_on_a_scenario(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made())
    table = results_table(study.results, study.order, study.clusters)
    assert table.header[:5] == ["algorithm", "scenario", "majority %", "minority %", "all %"]
    facade, epidemic = table.texts()
    assert facade[:2] == ["facade", "14:2"] and "±" in facade[2]
    assert facade[-3:] == ["28.8 MB", "2/3", "4.4"]
    assert epidemic[-2] == "–"


def test_rows_follow_the_order_of_scenarios_then_labels(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(scenarios=((8, 8), (14, 2))))
    rows = results_table(study.results, ["epidemic", "facade"]).texts()
    assert [row[:2] for row in rows] == [
        ["epidemic", "8:8"],
        ["facade", "8:8"],
        ["epidemic", "14:2"],
        ["facade", "14:2"],
    ]


def test_an_algorithm_that_knows_the_clusters_is_marked_and_never_best(tmp_path: Path) -> None:
    labels = {"told": "told", "facade": "facade", "epidemic": "epidemic"}
    study = study_of(tmp_path, Made(labels=labels, oracles=["told"]))
    rows = results_table(study.results, study.order).rows
    assert rows[0][0].text == "told (knows the clusters)"
    assert not any(cell.best for cell in rows[0])
    assert rows[1][3].best and not rows[2][3].best


def test_a_lone_algorithm_is_not_called_best(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(labels={"facade": "facade"}))
    assert not any(cell.best for cell in results_table(study.results).rows[0])


def test_one_cluster_is_all_and_has_one_column(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(clusters=("all",), scenarios=((16,),)))
    table = results_table(study.results, study.order, study.clusters)
    assert table.header == ["algorithm", "scenario", "all %", "sent/node", "settled", "seconds"]


def test_nobody_is_best_where_all_are_alike(tmp_path: Path) -> None:
    results = study_of(tmp_path, Made()).results
    alike = [{**results[0], "label": label} for label in ("a", "b")]
    assert not any(cell.best for row in results_table(alike).rows for cell in row)


def test_a_model_that_only_guesses_is_not_called_fair(tmp_path: Path) -> None:
    found = study_of(tmp_path, Made(seeds=(1,))).results
    guess = {**found[0], "label": "guess", "accuracy_all": 10.0, "demographic_parity": 0.0}
    table = results_table([*found, guess])
    column = table.header.index("DP")
    assert [row[0].text for row in table.rows if row[column].best] == ["facade"]


def test_one_seed_is_shown_without_a_spread(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(seeds=(1,)))
    assert "±" not in "".join(results_table(study.results).texts()[0])


def test_errors_have_their_own_table_without_fairness(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(metric="mse"))
    assert list(by_metric(study.results)) == ["mse"]
    table = results_table(study.results, study.order, study.clusters)
    assert "minority MSE" in table.header and "DP" not in table.header
    assert table.rows[0][3].best  # lower is better, and facade serves the minority


THREE = Made(scenarios=((10, 4, 2),), clusters=("A", "B", "C"))


def test_more_than_two_clusters_have_a_worst_one_and_a_gap(tmp_path: Path) -> None:
    study = study_of(tmp_path, THREE)
    header = results_table(study.results, study.order, study.clusters).header
    several = ["worst cluster %", "gap", "DP, worst pair", "EO, worst pair"]
    assert header[-7:-3] == several
    two = study_of(tmp_path / "two", Made())
    assert not set(several) & set(results_table(two.results, two.order, two.clusters).header)


def test_each_two_of_several_clusters_are_compared(tmp_path: Path) -> None:
    study = study_of(tmp_path, THREE)
    table = pairs_table(study.results, study.order)
    assert table.header == ["algorithm", "scenario", "clusters", "DP", "EO", "EO (TPR)"]
    assert [row[2] for row in table.texts()] == ["A and B", "A and C", "B and C"] * 2
    assert all("±" in row[4] for row in table.texts())
    assert "equalized_odds:A|C" in to_csv(study.results)
    two = study_of(tmp_path / "two", Made())
    assert not pairs_table(two.results).rows


def test_every_seed_has_its_settled_flag(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made())
    table = seeds_table(study.results, study.order, study.clusters)
    flags = [row[table.header.index("settled")] for row in table.texts()]
    assert flags == ["yes", "yes", "no", "–", "–", "–"]
    assert "before all-reduce" in table.header


def test_columns_that_no_seed_fills_are_left_out(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(labels={"epidemic": "epidemic"}))
    assert "settled" not in seeds_table(study.results).header


def test_no_results_make_an_empty_table() -> None:
    assert results_table([]).rows == [] and to_markdown(results_table([])).count("\n") == 2


def test_markdown_escapes_what_would_break_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(labels={"a|b<i>": "facade", "c": "dac"}))
    text = to_markdown(results_table(study.results, study.order))
    assert r"| a\|b&lt;i&gt; |" in text and "**" in text


def test_latex_escapes_what_would_break_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(labels={r"a_b & \input{x}": "facade", "c": "dac"}))
    text = to_latex(results_table(study.results, study.order))
    assert r"a\_b \& \textbackslash{}input\{x\}" in text
    assert r"$\pm$" in text and r"\textbf{" in text and "majority \\%" in text
    assert text.startswith(r"\begin{tabular}{llrrrrrrrrrr}")


def test_csv_holds_numbers_that_read_back(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made())
    file = tmp_path / "results.csv"
    file.write_text(to_csv(study.results, study.order))
    frame = pd.read_csv(file).set_index(["label", "key"])
    assert frame.loc[("facade", "bytes_per_node"), "mean"] == 28_800_000
    assert frame.loc[("facade", "accuracy:minority"), "low"] < 92
    assert set(frame["seeds"]) == {3}


def test_a_table_says_how_the_worst_served_nodes_fare(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made())
    table = nodes_table(study.results, study.order)
    assert table.header[2:] == ["worst node %", "worst 10% of nodes %", "variance", "Jain's index"]
    facade, epidemic = table.rows
    assert [cell.best for cell in facade[2:]] == [True] * 4
    assert not any(cell.best for cell in epidemic)


def test_nodes_that_did_not_train_have_columns_where_there_are_some(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(unseen=True))
    assert "unseen %" in results_table(study.results).header
    assert nodes_table(study.results).header[-2:] == ["unseen %", "worst 10% of unseen %"]
    assert nodes_table(study.results).texts()[0][-1] == "40.00 ± 0.00"


def test_models_tested_away_from_home_have_a_column(tmp_path: Path) -> None:
    results = study_of(tmp_path, Made()).results
    away = [{**result, "everywhere": {"accuracy_all": 31.0}} for result in results]
    table = results_table(away)
    column = table.header.index("everywhere %")
    assert [row[column] for row in table.texts()] == ["31.00 ± 0.00"] * 2


def test_what_tests_would_pick_has_a_column_of_its_own_and_is_never_best(tmp_path: Path) -> None:
    results = study_of(tmp_path, Made()).results
    seen = [{**r, "by_tests": {"accuracy_all": float(n)}} for n, r in enumerate(results)]
    table = results_table(seen)
    column = table.header.index("picked by tests %")
    assert not any(row[column].best for row in table.rows)


def test_a_regression_has_no_table_of_nodes(tmp_path: Path) -> None:
    study = study_of(tmp_path, Made(metric="mse"))
    assert nodes_table(study.results).header == ["algorithm", "scenario"]
