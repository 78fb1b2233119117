"""One self-contained page from one or more run folders, and the tables beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from coterie.errors import InputError
from coterie.report import domains, family, figures, picks, tables
from coterie.report.assets import SCRIPT, STYLE
from coterie.report.figures import Panel
from coterie.report.findings import findings
from coterie.report.lacking import lacking
from coterie.report.records import Run, Study, combine, read_run
from coterie.report.summarize import newcomers
from coterie.report.tables import Cell, Table

# The page asks nobody for anything, whatever a run folder holds.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
WIDE = 9  # columns beyond which a table puts spreads below their means, so that it fits a screen
NOTES = {
    "curves": "Mean over seeds; the band is one standard deviation either side.",
    "fair": "Two thirds of the mean over clusters, one third of 100 less the gap between the best "
    "and the worst cluster.",
    "bars": "How differently clusters are treated; whiskers: one standard deviation over seeds.",
    "pairs": "0 is fair. The results above are means over these pairs.",
    "bytes": "The mean over all nodes against what a node has sent, each copy counted; the final "
    "all-reduce is left out, and what a server sends is in the table of results.",
    "choices": "Settled means that each cluster's nodes prefer one head or model, and distinct "
    "clusters distinct ones.",
    "picked": "Of the peers with whom nodes averaged, those of their own cluster. Mean over seeds; "
    "the band is one standard deviation, the dotted line what chance gives.",
    "competitive": "Groups that the bandit of a node in the middle can still draw: the mean over "
    "seeds of the median over nodes; the band goes from the lowest to the highest seed.",
    "family": "A colour is a camp: a model has the colour of those from whom most of its followers "
    "come. A fork is another child of one parent, a merger another "
    "model whose followers now follow one, extinct what nobody went on with.",
    "domains": "FedCG: the share of samples that were trained on in each domain, the largest first "
    "(domains have no order of their own), and the entropy of these shares, 0 where one has all.",
    "notes": "What the server noted of the last round: the entropy of the domains' shares, and "
    "lambda, by which branches count, of every layer.",
    "nodes": "Over nodes, whatever their cluster; of fewer than 20 nodes the worst tenth is one. "
    "Variance in squared percentage points; Jain's index is 1 where all nodes do alike. Unseen "
    "nodes did not train: they got what the algorithm gives to newcomers.",
    "table": "Mean ± standard deviation over seeds. The best of each scenario is marked, save for "
    "algorithms that are told the clusters; the fairest among those that have nine tenths of the "
    "best accuracy, since guessing treats all alike. DP and EO: demographic parity and equalized "
    "odds (true and false positive rates; or true positive rates alone), 0 is fair.",
}


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write `report.html` and `tables/` for these run folders and return the page's path.

    `out` is an .html file or a folder; by default the run folder, or here for several runs.
    """
    runs = [read_run(folder) for folder in folders]
    study = combine(runs)
    page = _target(folders, out)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render(study, runs), encoding="utf-8")
        write_tables(study, page.parent / "tables")
    except OSError as error:
        raise InputError(f"cannot write the report to {str(page)!r}: {error}") from None
    return page


def write_tables(study: Study, folder: Path) -> None:
    """Write the results and the seeds as Markdown, CSV and LaTeX, one set for each metric."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = tables.by_metric(study.results)
    for metric, results in groups.items():
        ending = f"-{metric}" if len(groups) > 1 else ""
        (folder / f"results{ending}.csv").write_text(
            tables.to_csv(results, study.order), encoding="utf-8"
        )
        made = {
            "results": tables.results_table(results, study.order, study.clusters),
            "nodes": tables.nodes_table(results, study.order),
            "seeds": tables.seeds_table(results, study.order, study.clusters),
        }
        for name, table in made.items():
            stem = folder / f"{name}{ending}"
            stem.with_suffix(".md").write_text(tables.to_markdown(table), encoding="utf-8")
            stem.with_suffix(".tex").write_text(tables.to_latex(table), encoding="utf-8")
    rare = {
        "pairs": tables.pairs_table(study.results, study.order),
        "notes": domains.notes_table(study),
    }
    for name, table in rare.items():
        if table.rows:
            (folder / f"{name}.md").write_text(tables.to_markdown(table), encoding="utf-8")
            (folder / f"{name}.tex").write_text(tables.to_latex(table), encoding="utf-8")


def render(study: Study, runs: Sequence[Run]) -> str:
    """The whole page as text."""
    drawn: list[Panel] = []
    return document(study.name, "".join(_sections(study, runs, drawn)), drawn)


def document(title: str, body: str, drawn: Sequence[Panel]) -> str:
    """A page that needs nothing else: its look, its behaviour and the figures drawn in it."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)} · Coterie</title>
<style>{STYLE}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="figures">{_embedded(panel.figure for panel in drawn)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _target(folders: Sequence[Path], out: Path | None) -> Path:
    if out is None:
        return (folders[0] if len(folders) == 1 else Path()) / "report.html"
    return out if out.suffix == ".html" else out / "report.html"


def _sections(study: Study, runs: Sequence[Run], drawn: list[Panel]) -> Iterable[str]:
    yield _head(study, [text for run in runs for text in lacking(run)])
    yield _results(study)
    yield _nodes(study)
    yield from figure_sections(study, drawn)
    yield seeds(study)
    yield from (run_details(run) for run in runs)


def figure_sections(study: Study, drawn: list[Panel]) -> Iterable[str]:
    """Every figure that the records allow, with a legend that hides and shows labels."""
    yield legend(study)
    curves = figures.accuracy_over_rounds(study)
    yield panels("Each cluster over rounds", NOTES["curves"], curves, drawn)
    fair = figures.fair_accuracy_over_rounds(study)
    yield panels("Fair accuracy over rounds", NOTES["fair"], fair, drawn)
    bars = figures.fairness_bars(study)
    yield panels("Fairness between clusters", NOTES["bars"], bars, drawn)
    sent = figures.accuracy_over_bytes(study)
    yield panels("What it costs to send", NOTES["bytes"], sent, drawn)
    picked = picks.picked_over_rounds(study)
    yield panels("Whom nodes picked", NOTES["picked"], picked, drawn)
    left = picks.competitive_over_rounds(study)
    yield panels("Groups left to pick from", NOTES["competitive"], left, drawn)
    yield pairs(study)
    yield _choices(study, drawn)
    yield _family(study, drawn)
    yield from _domains(study, drawn)


def _head(study: Study, lacks: Sequence[str]) -> str:
    said = findings(study) or ["No results yet."]
    told = "".join(f"<p>{escape(text)}</p>" for text in [*lacks, *said])
    seeds = len({result["seed"] for result in study.results})
    count = len({(r["label"], r["scenario"], r["seed"]) for r in study.results})
    about = f"{count} result{_s(count)}, {seeds} seed{_s(seeds)}"
    return (
        f'<h1>{escape(study.name)}</h1><p class="soft">{about}</p><div class="finding">{told}</div>'
    )


def _results(study: Study) -> str:
    colors = {label: look.color for label, look in figures.looks(study).items()}
    parts = [
        table_html(tables.results_table(results, study.order, study.clusters), colors)
        for results in tables.by_metric(study.results).values()
    ]
    reasons = dict.fromkeys(r["parity_reason"] for r in study.results if r["parity_reason"])
    notes = "".join(f'<p class="soft">{escape(reason)}</p>' for reason in reasons)
    return f'<h2>Results</h2><p class="soft">{NOTES["table"]}</p>{"".join(parts)}{notes}'


def _nodes(study: Study) -> str:
    """Those who are served worst, where the metric is accuracy."""
    results = tables.by_metric(study.results).get("accuracy")
    if not results:
        return ""
    colors = {label: look.color for label, look in figures.looks(study).items()}
    made = table_html(tables.nodes_table(results, study.order), colors)
    note = escape(f"{NOTES['nodes']} {newcomers(results)}")
    return f'<h2>Who is served worst</h2><p class="soft">{note}</p>{made}'


def seeds(study: Study) -> str:
    """The table of every seed and, too long for a column, the story of how each settled."""
    colors = {label: look.color for label, look in figures.looks(study).items()}
    parts = [
        table_html(
            tables.without(tables.seeds_table(results, study.order, study.clusters), "settlement"),
            colors,
        )
        for results in tables.by_metric(study.results).values()
    ]
    told = [
        f"{tables.shown(r)}, {r['scenario']}, seed {r['seed']}: {r['settlement']}"
        for r in study.results
        if r["settlement"]
    ]
    items = "".join(f"<li>{escape(text)}</li>" for text in told)
    title = "When each seed settled, or why it did not"
    why = f"<details><summary>{title}</summary><ul>{items}</ul></details>" if told else ""
    return f"<h2>Every seed</h2>{''.join(parts)}{why}"


def pairs(study: Study) -> str:
    """How alike each two of more than two clusters are treated."""
    table = tables.pairs_table(study.results, study.order)
    if not table.rows:
        return ""
    colors = {label: look.color for label, look in figures.looks(study).items()}
    note = f'<p class="soft">{NOTES["pairs"]}</p>'
    return f"<h2>Fairness between each two clusters</h2>{note}{table_html(table, colors)}"


def legend(study: Study) -> str:
    """Buttons that hide and show a label in all figures."""
    chips = [
        f'<button class="chip" type="button" aria-pressed="true" data-label="{escape(look.label)}">'
        f"{_dot(look.color)}{look.name}</button>"
        for look in figures.looks(study).values()
    ]
    return f'<div class="legend" role="group" aria-label="Show or hide">{"".join(chips)}</div>'


def panels(
    title: str, note: str, made: Sequence[Panel], drawn: list[Panel], keys: bool = False
) -> str:
    """A section of panels in their rows; `keys`: each has a legend of its own."""
    if not made:
        return ""
    names = dict.fromkeys(panel.row for panel in made)
    grids = "".join(
        _grid(name, [panel for panel in made if panel.row == name], drawn, keys) for name in names
    )
    return f'<h2>{escape(title)}</h2><p class="soft">{escape(note)}</p>{grids}'


def _grid(name: str, row: Sequence[Panel], drawn: list[Panel], keys: bool) -> str:
    """A row of panels, headed by its name where the panels do not say it themselves."""
    cards = "".join(_panel(panel, drawn, keys) for panel in row)
    head = "" if name in row[0].title else f'<h3 class="row">{escape(name)}</h3>'
    narrow = sum(not panel.wide for panel in row)
    return f'{head}<div class="grid{" two" if narrow in (1, 2, 4) else ""}">{cards}</div>'


def _choices(study: Study, drawn: list[Panel]) -> str:
    heads = figures.without(study, family.labels(study))
    made = [*figures.choice_timelines(heads), *figures.choice_matrices(heads)]
    return _picked("Which head or model nodes prefer", NOTES["choices"], made, drawn)


def _family(study: Study, drawn: list[Panel]) -> str:
    made = family.family_panels(study)
    return _picked("The family of models", NOTES["family"], made, drawn)


def _domains(study: Study, drawn: list[Panel]) -> Iterable[str]:
    shares, scales = domains.domain_shares(study), domains.scales(study)
    yield panels("The domains of samples", NOTES["domains"], shares, drawn, keys=True)
    yield panels("How even domains are", NOTES["domains"], domains.entropies(study), drawn)
    yield panels("How much branches count", NOTES["curves"], scales, drawn, keys=True)
    yield notes(study)


def notes(study: Study) -> str:
    """The table of what servers noted of the last round."""
    table = domains.notes_table(study)
    if not table.rows:
        return ""
    colors = {label: look.color for label, look in figures.looks(study).items()}
    made = table_html(table, colors)
    return f'<h2>Noted in the end</h2><p class="soft">{escape(NOTES["notes"])}</p>{made}'


def _picked(title: str, note: str, made: Sequence[Panel], drawn: list[Panel]) -> str:
    """A section of panels of which the reader picks a run."""
    names = dict.fromkeys(panel.row for panel in made)
    if not names:
        return ""
    options = "".join(f"<option>{escape(name)}</option>" for name in names)
    cards = "".join(_panel(panel, drawn, keys=True, choice=panel.row) for panel in made)
    return (
        f'<h2>{escape(title)}</h2><p class="soft">{escape(note)}</p>'
        f'<select aria-label="Run to look at">{options}</select><div class="grid">{cards}</div>'
    )


def _panel(panel: Panel, drawn: list[Panel], keys: bool, choice: str = "") -> str:
    panel.figure.update_layout(showlegend=keys)
    drawn.append(panel)
    chosen = f' data-choice="{escape(choice)}" hidden' if choice else ""
    save = '<button class="save" type="button" title="Save as a picture">PNG</button>'
    head = f"<header><h3>{escape(panel.title)}</h3>{save}</header>"
    plot = f'<div class="plot" data-figure="{len(drawn) - 1}"></div>'
    kind = "panel wide" if panel.wide else "panel"
    return f'<section class="{kind}"{chosen}>{head}{plot}</section>'


def run_details(run: Run) -> str:
    """The configuration and the environment of a run, folded away."""
    environment = "\n".join(f"{key}: {_value(value)}" for key, value in run.environment.items())
    name = run.summary.name
    return _details(f"Configuration of {name}", run.config) + _details(
        f"Environment of {name}", environment
    )


def _details(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table_html(table: Table, colors: Mapping[str, str], sortable: bool = True) -> str:
    """A table whose rows have the colour of their label, and columns that can be sorted by."""
    plain, button = (
        '<th scope="col">{}</th>',
        '<th scope="col"><button type="button">{}</button></th>',
    )
    head = "".join((button if sortable else plain).format(escape(name)) for name in table.header)
    rows = "".join(
        f"<tr class='{'' if row[0].text else 'more'}'>{''.join(_cells(row, colors))}</tr>"
        for row in table.rows
    )
    many = ' class="many"' if len(table.header) > WIDE else ""
    return (
        f'<div class="scroll"><table{many}><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cells(row: Sequence[Cell], colors: Mapping[str, str]) -> Iterable[str]:
    color = colors.get(str(row[0].value)) if row[0].text else None
    dot = _dot(color) if color else ""
    for index, cell in enumerate(row):
        value = "" if cell.value is None else escape(str(cell.value))
        wraps = not cell.best and ", " in cell.text  # a text that may have two lines
        style = ' class="best"' if cell.best else ' class="text"' if wraps else ""
        text = escape(cell.text)
        if "±" in text and isinstance(cell.value, float):
            mean, _, std = text.partition(" ")
            text = f"{mean} <small>{std}</small>"
        yield f'<td{style} data-value="{value}">{dot if index == 0 else ""}{text}</td>'


def _dot(color: str) -> str:
    return f'<span class="dot" style="background:{color}"></span>'


def _embedded(shown: Iterable[Any]) -> str:
    """Figures as JSON that cannot end the script element it stands in."""
    text = f"[{','.join(figure.to_json() for figure in shown)}]"
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _s(count: int) -> str:
    return "" if count == 1 else "s"
