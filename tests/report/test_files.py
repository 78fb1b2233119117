from pathlib import Path

import plotly.graph_objects as go
import pytest

from coterie.report import figures
from coterie.report.figures import Panel
from coterie.report.files import write_figure
from coterie.report.heads import head_shares
from coterie.report.records import combine, read_run

from .folder import Made, write_run

DRAWN = [
    figures.accuracy_over_rounds,
    figures.fairness_bars,
    figures.choice_timelines,
    figures.choice_matrices,
    head_shares,
]


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_every_kind_of_panel_becomes_files(draw, tmp_path: Path) -> None:
    study = combine([read_run(write_run(tmp_path, Made(seeds=(1,))))])
    paths = write_figure(draw(study), tmp_path / "figures" / "4.1")
    assert [path.name for path in paths] == ["4.1.pdf", "4.1.png"]
    assert paths[0].read_bytes().startswith(b"%PDF")
    assert paths[1].read_bytes().startswith(b"\x89PNG")


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    figure = figures.canvas("rounds", "%")
    figure.add_trace(go.Scatter(x=[1, 2], y=[3, 4], name="a &lt;$x_{1$", line={"color": "#123456"}))
    write_figure([Panel("costs $5 and $6", figure)], tmp_path / "names")
    assert (tmp_path / "names.png").stat().st_size > 1000
