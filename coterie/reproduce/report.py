"""What a reproduction has so far, as a page, tables and figures; it reads only run folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from coterie.errors import InputError
from coterie.report import files, page, tables
from coterie.report.figures import Panel, looks
from coterie.report.records import Run, Study, combine, read_run
from coterie.report.settling import settlement_table
from coterie.report.tables import Table
from coterie.reproduce import beside, claims
from coterie.reproduce.beside import Row
from coterie.reproduce.claims import Verdict
from coterie.reproduce.experiment import Experiment, FigureTable, Scale
from coterie.reproduce.figures import KEYED, NOTES, panels_of
from coterie.reproduce.parts import Task

NUMBERED = re.compile(r"[A-Z\d]+\.\d")  # names that are a figure's number in the paper


@dataclass(frozen=True)
class Reproduction:
    """An experiment, the runs of it that are done, and its rows."""

    experiment: Experiment
    tasks: Sequence[Task]
    runs: Sequence[Run]
    study: Study | None  # none before the first run is done
    rows: list[Row]
    scale: Scale

    @property
    def keys(self) -> list[str]:
        """The columns of the table."""
        paper = self.experiment.file.paper
        keys = beside.keys_of(self.rows, self.study.clusters if self.study else ())
        return [*keys, *(key for key in (paper.also if paper else ()) if key not in keys)]

    def open_parts(self) -> dict[str, str]:
        """The parts that are not done, and how far they are."""
        states = {task.part.name: _state(task) for task in self.tasks}
        return {name: state for name, state in states.items() if state != "done"}

    def verdicts(self) -> list[Verdict]:
        """Whether the paper's claims hold."""
        return claims.verdicts(self.experiment, self.study)

    def settlement(self) -> Table | None:
        """How often and when runs settled, for experiments that ask."""
        if not self.study or not self.experiment.file.settlement:
            return None
        made = settlement_table(self.study.results, self.study.order)
        return made if made.rows else None


def gather(experiment: Experiment, tasks: Sequence[Task], scale: Scale) -> Reproduction:
    """Read what is there."""
    runs = [read_run(task.folder) for task in tasks if task.state() == "done"]
    study = combine(runs) if runs else None
    states = {task.part.name: _state(task) for task in tasks}
    rows = beside.rows(experiment, study.results if study else [], states)
    return Reproduction(experiment, tasks, runs, study, rows, scale)


def _state(task: Task) -> str:
    state = task.state()
    if state != "begun":
        return state
    return f"open, {task.rounds_done()} of {task.rounds_planned()} rounds done"


def write(found: Reproduction, folder: Path) -> Path:
    """Write report.html, tables/ and figures/; returns the page's path."""
    drawn = {f.name: panels_of(f, found.study) for f in found.experiment.file.figure if found.study}
    target = folder / "report.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target.write_text(render(found, drawn), encoding="utf-8")
        write_tables(found, folder / "tables")
        if files.available():
            for name, panels in drawn.items():
                if panels:
                    files.write_figure(panels, folder / "figures" / name)
    except OSError as error:
        raise InputError(f"cannot write the report to {str(target)!r}: {error}") from None
    return target


def write_tables(found: Reproduction, folder: Path) -> None:
    """Ours beside the paper's as Markdown, CSV and LaTeX; claims, every seed, the settlement."""
    folder.mkdir(parents=True, exist_ok=True)
    if found.study:
        page.write_tables(found.study, folder)
    made = {
        "beside": beside.table(found.rows, found.keys),
        "claims": claims.table(found.verdicts()) if found.experiment.file.claim else None,
        "settlement": found.settlement(),
    }
    for name, table in made.items():
        if table:
            (folder / f"{name}.md").write_text(tables.to_markdown(table), encoding="utf-8")
            (folder / f"{name}.tex").write_text(tables.to_latex(table), encoding="utf-8")
    text = beside.to_csv(found.rows, found.keys)
    (folder / "beside.csv").write_text(text, encoding="utf-8")


def render(found: Reproduction, figures: dict[str, list[Panel]]) -> str:
    """The page as text."""
    drawn: list[Panel] = []
    body = "".join(_sections(found, figures, drawn))
    return page.document(found.experiment.file.title, body, drawn)


def _sections(
    found: Reproduction, figures: dict[str, list[Panel]], drawn: list[Panel]
) -> Iterator[str]:
    yield _head(found)
    yield _beside(found)
    yield _claims(found)
    if not found.study:
        return
    yield _settlement(found)
    if found.experiment.file.figure:
        yield page.legend(found.study)
        for figure in found.experiment.file.figure:
            yield _figure(figure, figures[figure.name], drawn)
        yield page.pairs(found.study)
        yield page.notes(found.study)
    else:
        yield from page.figure_sections(found.study, drawn)
    yield page.seeds(found.study)
    yield from (page.run_details(run) for run in found.runs)


def _claims(found: Reproduction) -> str:
    made = found.verdicts()
    if not made:
        return ""
    head = f'<h2>What the paper claims</h2><p class="soft">{escape(claims.NOTE)}</p>'
    return head + page.table_html(claims.table(made), {}, sortable=False)


def _settlement(found: Reproduction) -> str:
    table = found.settlement()
    if not table or not found.study:
        return ""
    note = (
        "Settled: each cluster's nodes prefer one head, and distinct clusters distinct heads; with "
        "heads to spare, no head is shared across clusters. A seed that started again has not "
        "settled. Intervals are Wilson's."
    )
    return (
        f'<h2>How often it settled</h2><p class="soft">{escape(note)}</p>'
        + page.table_html(table, _colors(found))
        + _list("Of those that did not settle, the first", _stories(found.study))
    )


def _stories(study: Study) -> list[str]:
    """Why the first seed of each label and scenario that did not settle did not."""
    first: dict[tuple[str, str], str] = {}
    for r in study.results:
        if r["settled"] is False and r.get("settlement"):
            story = f"{r['label']} on {r['scenario']}, seed {r['seed']}: {r['settlement']}"
            first.setdefault((r["label"], r["scenario"]), story)
    return list(first.values())


def _figure(figure: FigureTable, panels: list[Panel], drawn: list[Panel]) -> str:
    number = f"Figure {figure.name}" if NUMBERED.match(figure.name) else ""
    title = ": ".join(part for part in (number, figure.title) if part) or figure.name
    if not panels:
        nothing = "Nothing to draw: no seed that is done fits this figure."
        return f'<h2>{escape(title)}</h2><p class="soft">{nothing}</p>'
    return page.panels(title, NOTES[figure.kind], panels, drawn, figure.kind in KEYED)


def _head(found: Reproduction) -> str:
    file = found.experiment.file
    source = f"{file.paper.source}. " if file.paper else ""
    devices = dict.fromkeys(str(run.environment.get("device")) for run in found.runs)
    machine = f"Ours: {', '.join(devices)}." if devices else "Nothing is done yet."
    lines = [file.about, *summary(found)]
    told = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    return (
        f"<h1>{escape(file.title)}</h1>"
        f'<p class="soft">{escape(source + machine)}</p><div class="finding">{told}</div>'
        + _list("Still open", [f"{name}: {state}" for name, state in found.open_parts().items()])
    )


def summary(found: Reproduction) -> list[str]:
    """In a sentence or two: how much is done, and how much differs."""
    done = len(found.tasks) - len(found.open_parts())
    lines = [f"{done} of {len(found.tasks)} parts are done."]
    apart = [row.difference(key) for row in found.rows for key in row.paper]
    held = [difference for difference in apart if difference]
    beyond = sum(difference.beyond for difference in held)
    if held:
        lines.append(
            f"Beside the paper's: {len(held)} of our numbers, {beyond} of them more than two "
            "standard deviations away."
        )
    return [*filter(None, [found.scale.words(), *lines, claims.count(found.verdicts())])]


def _list(title: str, entries: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(entry)}</li>" for entry in entries)
    return f"<h2>{escape(title)}</h2><ul>{items}</ul>" if items else ""


def _beside(found: Reproduction) -> str:
    table = beside.table(found.rows, found.keys)
    reasons = [
        f"{reason.label}{' on ' + ', '.join(reason.scenarios) if reason.scenarios else ''}: "
        f"{reason.text}"
        for reason in found.experiment.file.reason
    ]
    paper = any(row.paper for row in found.rows)
    title = "Ours beside the paper's" if paper else "Results"
    note = f'<p class="soft">{escape(beside.NOTE)}</p>' if paper else ""
    return (
        f"<h2>{title}</h2>{note}"
        + page.table_html(table, _colors(found), sortable=False)
        + _list("Why they differ", reasons)
        + _list("What is not as in the paper", found.experiment.file.differs)
    )


def _colors(found: Reproduction) -> dict[str, str]:
    return {label: look.color for label, look in looks(found.study).items()} if found.study else {}
