"""An experiment as a file: the runs behind a table or figure, and what the paper says of them.

Beside its own keys a file holds the tables of a configuration (`[data]`, `[train]`, ...), shared by
all its parts; a `[[part]]` is one run folder and changes what differs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coterie import config as configuration
from coterie.changes import INSTEAD
from coterie.config import Config, explain
from coterie.errors import InputError, at, unknown
from coterie.metrics.settlement import counted
from coterie.report.records import is_recorded
from coterie.report.summarize import BY_CLUSTER, is_key, known_keys
from coterie.tables import Section

DROPS = "drops"  # a key of claims: how much accuracy falls between evaluations
Number = float | tuple[float, float]  # a value, or a value and its spread over seeds
Kind = Literal[
    "accuracy",
    "fair",
    "fairness",
    "bytes",
    "gap",
    "heads",
    "choices",
    "matrix",
    "rate",
    "shares",
    "family",
    "picked",
    "competitive",
    "domains",
    "entropy",
    "lambda",
]


class PaperTable(Section):
    """What the paper reports."""

    source: str  # where in the paper
    keys: list[str]  # of the aggregate, such as "accuracy:minority"; the columns of `values`
    values: dict[str, dict[str, list[Number]]]  # row -> scenario -> a value a key; nan: none
    also: tuple[str, ...] = ()  # further keys, of which the paper says nothing
    rows: dict[str, str] = Field(default_factory=dict)  # our label -> the paper's row beside it
    tolerance: dict[str, float] = Field(default_factory=dict)  # by key: what is no difference

    def row_of(self, label: str) -> str:
        """The paper's row beside which a label of ours stands."""
        return self.rows.get(label, label)


class FigureTable(Section):
    """A figure: which records are drawn, and how."""

    name: str
    kind: Kind
    title: str = ""
    labels: tuple[str, ...] = ()  # none: all
    scenarios: tuple[str, ...] = ()  # none: all
    settled: bool | None = None  # only seeds that did, or did not
    seeds: int = Field(default=0, ge=0)  # the first so many of those; 0: all


class ReasonTable(Section):
    """Why our numbers differ from the paper's, as far as was found."""

    label: str
    text: str
    scenarios: tuple[str, ...] = ()  # none: all


class ClaimTable(Section):
    """A statement of the paper, as a comparison of what was measured."""

    text: str
    label: str  # whose value it is about
    key: str  # of the aggregate, such as "accuracy:minority", or "drops"
    relation: Literal["<", ">", "="]
    than: float | str  # a number, or another label
    by: float = Field(default=0, ge=0)  # at least so much more or less; at most so far from equal
    round: int = Field(default=0, ge=0)  # after which; 0: the last
    scenario: str = ""  # where the label has several

    @model_validator(mode="after")
    def _measured(self) -> ClaimTable:
        if self.key == DROPS and not self.round:
            return self
        if not is_key(self.key):
            raise ValueError(f"key {self.key!r} is none of the aggregate in summary.json")
        if self.round and not is_recorded(self.key):
            raise ValueError(f"key {self.key!r} is only known in the end; leave out `round`")
        return self


class PartTable(BaseModel):
    """A run: its name and the tables of a configuration that it changes."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(pattern=r"^[\w][\w.-]*$")
    note: str = ""


class File(BaseModel):
    """The keys of a file."""

    model_config = ConfigDict(extra="allow", frozen=True)

    title: str
    about: str = ""
    differs: list[str] = []  # what is not as in the paper
    uses: list[str] = []  # parts of experiments in the same folder, such as "table-4.2/el"
    settlement: bool = False  # tell how often runs settled, with intervals
    part: list[PartTable] = []
    paper: PaperTable | None = None
    figure: list[FigureTable] = []
    reason: list[ReasonTable] = []
    claim: list[ClaimTable] = []


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run."""

    fraction: float = 1.0  # of the rounds
    seeds: int = 0  # 0: the experiment's own

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InputError(f"--fraction must be above 0 and at most 1, got {self.fraction:g}")
        if self.seeds < 0:
            raise InputError(f"--seeds must be at least 1, got {self.seeds}")

    def suffix(self) -> str:
        """What is added to the name of the folder, so that different amounts never mix."""
        part = "" if self.fraction == 1 else f"-fraction-{self.fraction:g}"
        return part + (f"-seeds-{self.seeds}" if self.seeds else "")

    def words(self) -> str:
        """What a reader of the results must know; empty for a whole experiment."""
        rounds = "" if self.fraction == 1 else f"{self.fraction:.3g} of the rounds"
        seeds = counted(self.seeds, "seed") if self.seeds else ""
        given = ", ".join(filter(None, (rounds, seeds)))
        return f"Scaled down ({given}): these are not the experiment's numbers." if given else ""

    def apply(self, config: Config) -> Config:
        """The configuration with fewer rounds, evaluated as often, and with so many seeds."""
        rounds, every = config.experiment.rounds, config.evaluate.every
        if self.fraction < 1:
            rounds = max(2, round(self.fraction * rounds))
            every = max(1, round(self.fraction * every))
        table = config.model_dump(exclude_none=True)
        table["experiment"] |= {"rounds": rounds, "seeds": self._seeds(config.experiment.seeds)}
        table["evaluate"]["every"] = every
        return configuration.parse(table)

    def _seeds(self, own: list[int]) -> list[int]:
        """The first of the experiment's own seeds and, where they do not suffice, 1, 2, ..."""
        more = (seed for seed in range(1, self.seeds + len(own) + 1) if seed not in own)
        return [*own, *more][: self.seeds] if self.seeds else own


@dataclass(frozen=True)
class Part:
    """One run of an experiment; `home` is the experiment whose folder holds it."""

    home: str
    name: str
    note: str
    config: Config

    def cells(self) -> list[tuple[str, str]]:
        """The (label, scenario) pairs that it measures."""
        labels = [self.config.label(table) for table in self.config.algorithm]
        return [(label, scenario) for scenario in self.config.data.scenarios() for label in labels]

    def rows(self) -> int:
        """How many nodes train together in the largest stack."""
        sizes = [sum(counts) for counts in self.config.data.scenarios().values()]
        return len(self.config.experiment.seeds) * max(sizes.count(n) * n for n in sizes)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, ready to be run."""

    name: str
    file: File
    parts: tuple[Part, ...]

    def cells(self) -> list[tuple[str, str]]:
        """The (label, scenario) pairs of all parts."""
        return [cell for part in self.parts for cell in part.cells()]

    def labels(self) -> list[str]:
        """The labels of all parts, in their order."""
        return list(dict.fromkeys(label for label, _ in self.cells()))

    def place(self, label: str, scenario: str = "") -> tuple[str, str]:
        """Where a label was measured: on this scenario, or else on the only one that it has."""
        there = [own for name, own in self.cells() if name == label]
        if scenario in there:
            return label, scenario
        if len(there) != 1:
            raise InputError(
                f"{label!r} is measured on {', '.join(there)}; say which one as `scenario`"
            )
        return label, there[0]

    def chosen(self, names: Iterable[str]) -> tuple[Part, ...]:
        """The parts of these names; all where there are none."""
        known = [part.name for part in self.parts]
        wanted = list(names)
        for name in wanted:
            if name not in known:
                raise unknown("part", name, known, f"coterie reproduce {self.name} --list")
        return tuple(part for part in self.parts if not wanted or part.name in wanted)


def read(path: Path, name: str) -> Experiment:
    """The experiment of a file; whatever can be checked without data is checked here."""
    try:
        file = _file(path)
        own = [_part(file, part, name) for part in file.part]
        experiment = Experiment(name, file, (*_used(file, path, name), *own))
        _check(experiment)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return experiment


def _file(path: Path) -> File:
    try:
        return File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read it: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"it is not valid TOML: {error}") from None
    except ValidationError as error:
        raise InputError(explain(File, error, "")) from None


def _used(file: File, path: Path, name: str) -> list[Part]:
    """The parts of other experiments that this one shows; they are run in those."""
    used = []
    for entry in file.uses:
        stem, _, wanted = entry.partition("/")
        home = path.with_name(f"{stem}.toml")
        if not home.is_file():
            raise unknown(
                "experiment in `uses`:", stem, (p.stem for p in path.parent.glob("*.toml"))
            )
        other = _file(home)
        made = {p.name: _part(other, p, name.removesuffix(path.stem) + stem) for p in other.part}
        if wanted not in made:
            raise unknown(f"part of {stem!r} in `uses`:", wanted, made)
        used.append(made[wanted])
    return used


def _part(file: File, part: PartTable, home: str) -> Part:
    for table in (file, part):
        for key in table.model_extra or {}:
            if key not in Config.model_fields:
                known = [*type(table).model_fields, *Config.model_fields]
                raise unknown("key", key, known)
    whole = merged({"runtime": {"models": False}}, file.model_extra or {})
    whole = merged(whole, part.model_extra or {})
    whole = merged(whole, {"experiment": {"name": f"{home} {part.name}"}})
    return Part(home, part.name, part.note, configuration.parse(whole, f"part {part.name!r}"))


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The table with these changes: tables are merged key by key, all else is replaced."""
    whole = {key: value for key, value in table.items() if INSTEAD.get(key) not in changes}
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(whole.get(key), Mapping)
        whole[key] = merged(whole[key], value) if both else value
    return whole


def _check(experiment: Experiment) -> None:
    file, parts = experiment.file, [part.name for part in experiment.parts]
    if not parts:
        raise InputError("an experiment needs a [[part]], or `uses` those of another one")
    _distinct("parts are named", parts)
    _distinct("parts measure", [f"{label} on {scenario}" for label, scenario in experiment.cells()])
    _distinct("figures are named", [figure.name for figure in file.figure])
    for number, figure in enumerate(file.figure):
        _known(experiment, figure.labels, figure.scenarios, f"figure.{number}")
    for number, reason in enumerate(file.reason):
        _known(experiment, [reason.label], reason.scenarios, f"reason.{number}")
    for number, claim in enumerate(file.claim):
        _check_claim(experiment, claim, f"claim.{number}")
    if file.paper:
        _check_paper(experiment, file.paper)


def _distinct(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two {what} {name!r}; each needs its own")


def _known(
    experiment: Experiment, labels: Iterable[str], scenarios: Iterable[str], where: str
) -> None:
    for label in labels:
        if label not in experiment.labels():
            raise unknown(f"label at {where}:", label, experiment.labels())
    there = {scenario for _, scenario in experiment.cells()}
    for scenario in scenarios:
        if scenario not in there:
            raise unknown(f"scenario at {where}:", scenario, there)


def _check_claim(experiment: Experiment, claim: ClaimTable, where: str) -> None:
    labels = [claim.label, *([claim.than] if isinstance(claim.than, str) else [])]
    _known(experiment, labels, [claim.scenario] if claim.scenario else [], where)
    _check_keys(experiment, [claim.key] if claim.key != "drops" else [], where)
    with at(where):
        for label in labels:
            experiment.place(label, claim.scenario)


def _check_keys(experiment: Experiment, keys: Iterable[str], where: str) -> None:
    """Whether runs will measure these; what a server notes, and pairs, are taken on trust."""
    tables = [table for part in experiment.parts for table in part.config.data.clusters]
    known = known_keys(dict.fromkeys(table.name for table in tables))
    for key in keys:
        kind, _, name = key.partition(":")
        trusted = kind == "note" or (kind in BY_CLUSTER and "/" in name)
        if key not in known and not trusted:
            raise unknown(f"key at {where}:", key, known)


def _check_paper(experiment: Experiment, paper: PaperTable) -> None:
    _known(experiment, paper.rows, [], "paper.rows")
    _check_keys(experiment, paper.keys, "paper.keys")
    _check_keys(experiment, paper.also, "paper.also")
    _check_keys(experiment, paper.tolerance, "paper.tolerance")
    held = {paper.row_of(label) for label in experiment.labels()}
    for row, scenarios in paper.values.items():
        if row not in held:
            raise unknown("row at paper.values:", row, held)
        _known(experiment, [], scenarios, f"paper.values.{row}")
        for scenario, values in scenarios.items():
            if len(values) != len(paper.keys):
                raise InputError(
                    f"paper.values.{row}.{scenario}: {len(paper.keys)} keys but {len(values)} "
                    "values; give one for each of paper.keys"
                )
