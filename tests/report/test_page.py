import json
import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

import coterie.report.page
from coterie.errors import InputError
from coterie.report.page import write_report

from .folder import Made, write_run

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def own_part(page: Path) -> str:
    """The page without plotly's own code."""
    return page.read_text(encoding="utf-8").replace(get_plotlyjs(), "")


def test_the_page_stands_alone(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path / "run", Made())])
    assert page == tmp_path / "run" / "report.html"
    text = own_part(page)
    assert "://" not in text and not re.search(r"<(link|iframe|img|base)\b|\bsrc=", text)
    assert page.read_text(encoding="utf-8").count(get_plotlyjs()) == 1
    assert page.stat().st_size < 6_000_000


def test_the_page_holds_finding_tables_figures_and_configuration(tmp_path: Path) -> None:
    text = own_part(write_report([write_run(tmp_path, Made())]))
    for part in ("The minority (2 of 16 nodes)", "Every seed", "[experiment]", "device: cpu"):
        assert part in text
    found = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert found and len(json.loads(found[1])) == text.count('class="plot"')


def test_nothing_from_a_file_becomes_markup(tmp_path: Path) -> None:
    made = Made(name=EVIL, labels={EVIL: "facade", "b": "dac"}, clusters=(EVIL, "small"))
    folder = write_run(tmp_path, made)
    (folder / "environment.json").write_text(json.dumps({EVIL: EVIL}))
    text = own_part(write_report([folder]))
    assert "<script>alert" not in text and "<img" not in text
    assert len(re.findall(r"<script\b", text)) == 3
    assert "&lt;script&gt;alert(1)" in text


def test_tables_are_written_beside_the_page(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path / "run", Made())], tmp_path / "out")
    names = {path.name for path in (page.parent / "tables").iterdir()}
    assert page == tmp_path / "out" / "report.html"
    made = {f"{name}.{kind}" for name in ("results", "nodes", "seeds") for kind in ("md", "tex")}
    assert names == made | {"results.csv"}


def test_several_clusters_are_compared_two_by_two(tmp_path: Path) -> None:
    made = Made(scenarios=((10, 4, 2),), clusters=("A", "B", "C"))
    page = write_report([write_run(tmp_path, made)])
    assert "Fairness between each two clusters" in own_part(page)
    assert "| A and C |" in (tmp_path / "tables" / "pairs.md").read_text()
    assert "A and C &" in (tmp_path / "tables" / "pairs.tex").read_text()
    two = write_report([write_run(tmp_path / "two", Made())])
    assert "each two clusters" not in own_part(two)
    assert not (two.parent / "tables" / "pairs.md").exists()


def test_runs_with_different_metrics_share_a_page_but_not_a_table(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", Made())
    two = write_run(tmp_path / "two", Made(name="errors", scenarios=((6, 2),), metric="mse"))
    page = write_report([one, two], tmp_path / "both.html")
    assert page == tmp_path / "both.html"
    text = own_part(page)
    assert "minority MSE" in text and "minority %" in text
    assert (tmp_path / "tables" / "results-mse.csv").exists()


def test_how_each_seed_settled_stands_below_the_table_of_seeds(tmp_path: Path) -> None:
    page = own_part(write_report([write_run(tmp_path, Made())]))
    table, _, told = page.partition("When each seed settled, or why it did not")
    assert "<li>facade, 14:2, seed 3: never settled: they share head 0</li>" in told
    assert "never settled: they share head 0</td>" not in table


def test_a_run_without_results_still_has_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made(seeds=()))
    assert "No results yet." in own_part(write_report([folder]))


def test_a_reason_for_missing_fairness_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Made())
    summary = json.loads((folder / "summary.json").read_text())
    summary["results"][0]["parity_reason"] = "no fairness: one cluster only"
    (folder / "summary.json").write_text(json.dumps(summary))
    assert "no fairness: one cluster only" in own_part(write_report([folder]))


def test_a_place_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write the report"):
        write_report([write_run(tmp_path / "run", Made())], tmp_path / "file")


def test_a_report_imports_nothing_that_made_the_run() -> None:
    folder = Path(coterie.report.page.__file__).parent
    sources = [*folder.glob("*.py"), *(folder.parent / "metrics").glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    own = re.findall(r"^\s*(?:from|import) coterie\.(\w+)", text, re.MULTILINE)
    assert set(own) == {"errors", "metrics", "report"}
    assert not re.search(r"^\s*(?:from|import) torch", text, re.MULTILINE)
