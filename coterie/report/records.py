"""Read run folders into pandas frames."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from coterie.errors import InputError
from coterie.report.summarize import Summary, cluster_names

WHERE = ("label", "scenario", "seed", "round", "phase")
BY_NODE = ("worst_node", "worst_tenth", "accuracy_variance", "jain_index")
MEASURED = ("accuracy", "loss", "bytes")
FAIRNESS = ("demographic_parity", "equalized_odds", "equalized_odds_tpr", "fair_accuracy")
COLUMNS = {
    "population": ("scenario", "seed", "clusters"),
    "cluster": (*WHERE, "cluster", "nodes", *MEASURED),
    "node": (*WHERE, "node", "cluster", *MEASURED),
    "overall": (*WHERE, *BY_NODE, *MEASURED, *FAIRNESS),
    "unseen": (*WHERE, *BY_NODE, "accuracy", "loss", *FAIRNESS),
    "choice": ("label", "scenario", "seed", "round", "choice"),
    "head": (*WHERE, "cluster", "head", "loss", "std"),
    "picked": (
        *("label", "scenario", "seed", "round", "cluster"),
        *("same", "picks", "competitive", "competitive_median"),
    ),
    "note": ("label", "scenario", "seed", "round", "name", "values"),
    "model": (
        *("label", "scenario", "seed", "born", "id", "parent"),
        *("updates", "followers", "popularity", "extinct"),
    ),
}
TEXT = ("label", "scenario", "phase", "cluster", "id", "parent", "name")
HEADS = range(-1, 1024)  # more than anyone trains; -1: not chosen yet

Frames = dict[str, pd.DataFrame]


def column_of(key: str) -> tuple[str, str, str]:
    """The frame, column and cluster in which a key of an aggregate is found round by round."""
    kind, _, cluster = key.partition(":")
    losses = dict.fromkeys(("mse_all", "mse", "loss_all"), "loss")
    same = {"accuracy_all": "accuracy", "bytes_per_node": "bytes", **losses}
    return ("cluster" if cluster else "overall"), same.get(kind, kind), cluster


def is_recorded(key: str) -> bool:
    """Whether a key of an aggregate is found round by round."""
    kind, column, _ = column_of(key)
    return column in COLUMNS[kind]


def _is_choice(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and v in HEADS for v in value)


def _is_clusters(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) in (int, float) for v in value)


LISTS = {
    "choice": _is_choice,
    "clusters": _is_clusters,
    "updates": _is_choice,
    "followers": _is_choice,
    "values": _is_numbers,
}


@dataclass(frozen=True)
class Run:
    """What one run folder holds."""

    folder: Path
    config: str
    environment: dict[str, Any]
    summary: Summary
    frames: Frames  # one for each kind of record


@dataclass(frozen=True)
class Study:
    """The results and records of one or more runs, side by side."""

    name: str
    results: list[dict[str, Any]]
    order: list[str]
    clusters: list[str]
    frames: Frames


def read_run(folder: Path) -> Run:
    """Read a run folder."""
    if not folder.is_dir():
        raise InputError(
            f"no run folder at {str(folder)!r}; give the folder that coterie run wrote"
        )
    inside = sorted(path.parent.name for path in folder.glob("*/config.toml"))
    if inside and not (folder / "config.toml").exists():
        raise InputError(
            f"{str(folder)!r} is no run folder, but has some in it ({', '.join(inside)}); give "
            "those (the report of coterie reproduce is written by that command, over them all)"
        )
    return Run(
        folder=folder,
        config=_text(folder, "config.toml"),
        environment=_environment(folder),
        summary=_summary(folder),
        frames=read_frames(folder),
    )


def read_frames(folder: Path) -> Frames:
    """The records of a run folder, one frame for each kind; a last line cut short is left out."""
    lines = _text(folder, "records.jsonl").splitlines()
    lines += _text(folder, "dag.jsonl").splitlines() if (folder / "dag.jsonl").exists() else []
    kinds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in COLUMNS}
    for record in _records(folder, lines):
        if record.get("kind") in kinds:
            kinds[record["kind"]].append(record)
    return _with_clusters({kind: _frame(kind, rows) for kind, rows in kinds.items()})


def _with_clusters(frames: Frames) -> Frames:
    """Put each choice beside the clusters of the nodes that made it."""
    population, choice = frames["population"], frames["choice"]
    keys = zip(population["scenario"], population["seed"], strict=True)
    known = dict(zip(keys, population["clusters"], strict=True))
    rows = zip(choice["scenario"], choice["seed"], strict=True)
    clusters = pd.Series([known.get(row, []) for row in rows], dtype=object)
    return {**frames, "choice": choice.assign(clusters=clusters)}


def combine(runs: Sequence[Run]) -> Study:
    """Several runs as one; a label with two results on a scenario and seed gets the run's name."""
    if not runs:
        raise InputError("no run folder given; name at least one (coterie report DIR...)")
    named = [
        _rename(run, clashes(runs), suffix)
        for run, suffix in zip(runs, _suffixes(runs), strict=True)
    ]
    results = [result.model_dump() for run in named for result in run.summary.results]
    return Study(
        name=" + ".join(dict.fromkeys(run.summary.name for run in runs)),
        results=results,
        order=_unique([run.summary.order for run in named], [r["label"] for r in results]),
        clusters=_unique([run.summary.clusters for run in runs], cluster_names(results)),
        frames={
            kind: pd.concat([run.frames[kind] for run in named], ignore_index=True)
            for kind in COLUMNS
        },
    )


def clashes(runs: Sequence[Run]) -> set[str]:
    """The labels that stand for two different results."""
    keys = Counter((r.label, r.scenario, r.seed) for run in runs for r in run.summary.results)
    return {label for (label, _, _), times in keys.items() if times > 1}


def _rename(run: Run, labels: set[str], suffix: str) -> Run:
    if not labels:
        return run
    new = {label: f"{label} [{suffix}]" for label in labels}
    results = [
        r.model_copy(update={"label": new.get(r.label, r.label)}) for r in run.summary.results
    ]
    order = [new.get(label, label) for label in run.summary.order]
    summary = run.summary.model_copy(update={"results": results, "order": order})
    frames = {
        kind: frame.assign(label=frame["label"].replace(new)) if "label" in frame else frame
        for kind, frame in run.frames.items()
    }
    return Run(run.folder, run.config, run.environment, summary, frames)


def _suffixes(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its own where unique, else its folder's, else a number."""
    for names in ([run.summary.name for run in runs], [run.folder.name for run in runs]):
        if len(set(names)) == len(runs):
            return names
    return [str(number) for number in range(1, len(runs) + 1)]


def _unique(first: Sequence[Sequence[str]], rest: Sequence[str]) -> list[str]:
    """All names that occur in `rest`, those of `first` in its order."""
    wanted = set(rest)
    listed = [name for names in first for name in names if name in wanted]
    return list(dict.fromkeys([*listed, *rest]))


def _text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"no {name} in {str(folder)!r}; give a finished run folder "
            "(an interrupted run goes on with coterie run --resume)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {str(folder / name)!r}: {error}") from None


def _json(folder: Path, name: str) -> Any:
    try:
        return json.loads(_text(folder, name))
    except json.JSONDecodeError as error:
        raise InputError(f"{str(folder / name)!r} is not JSON: {error}; run again") from None


def _environment(folder: Path) -> dict[str, Any]:
    found = _json(folder, "environment.json")
    if not isinstance(found, dict):
        raise InputError(f"{str(folder / 'environment.json')!r} must hold a table, got {found!r}")
    return found


def _summary(folder: Path) -> Summary:
    try:
        return Summary.model_validate(_json(folder, "summary.json"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{str(folder / 'summary.json')!r}: {where}: {first['msg'].lower()}, "
            f"got {str(first['input'])[:80]!r}; was it written by another version?"
        ) from None


def _records(folder: Path, lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return
            raise InputError(
                f"{str(folder / 'records.jsonl')!r}: line {number} is not JSON: {error}; "
                "remove the line or run again"
            ) from None
        if isinstance(record, dict):
            yield record


def _frame(kind: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A frame with the columns of its kind, whatever the records hold."""
    columns = {name: _column(name, [row.get(name) for row in rows]) for name in COLUMNS[kind]}
    return pd.DataFrame(columns)


def _column(name: str, values: list[Any]) -> pd.Series[Any]:
    if name in LISTS:
        return pd.Series([v if LISTS[name](v) else [] for v in values], dtype=object)
    if name in TEXT:
        return pd.Series([str(v) for v in values], dtype=object)
    return pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").astype("float64")
