"""A run as validated models: TOML in, every key checked before anything is read or trained."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from coterie.errors import InputError, unknown

S = TypeVar("S", bound=BaseModel)
Spec = str | dict[str, Any]  # a registered name, or a table with a name and options


class Section(BaseModel):
    """A table of the configuration in which unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Experiment(Section):
    """What is run, how often and how long."""

    name: str = "run"
    seeds: list[int] = Field(default=[1, 2, 3], min_length=1)
    rounds: int = Field(default=100, ge=1)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        return list(range(1, value + 1)) if type(value) is int else value

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value) or any(not 0 <= seed < 1 << 62 for seed in value):
            raise ValueError("seeds must be different whole numbers from 0 to 2**62 - 1")
        return value


class ClusterTable(Section):
    """One cluster: its name, its nodes and what makes its data differ."""

    name: str
    nodes: int = Field(default=0, ge=0)
    shifts: list[Spec] = []


class Data(Section):
    """Which samples, and who owns them."""

    source: Spec = "digits"
    clusters: list[ClusterTable] = Field(
        default=[
            ClusterTable(name="majority", nodes=14),
            ClusterTable(name="minority", nodes=2, shifts=[{"name": "rotation", "degrees": 180}]),
        ],
        min_length=1,
    )
    ratios: list[str] = []  # scenarios: nodes of each cluster, such as "30:2"; replaces `nodes`
    partition: Spec = "iid"
    holdout: float = Field(default=0.1, ge=0, lt=1)  # of each node's samples, for validation

    @model_validator(mode="after")
    def _counts(self) -> Data:
        if len({cluster.name for cluster in self.clusters}) != len(self.clusters):
            raise ValueError("clusters need different names")
        for counts in self.scenarios().values():
            if sum(counts) < 1:
                raise ValueError("there are no nodes; give each cluster `nodes`, or `ratios`")
        return self

    def scenarios(self) -> dict[str, tuple[int, ...]]:
        """Nodes of each cluster, by the name of the scenario."""
        if not self.ratios:
            counts = tuple(cluster.nodes for cluster in self.clusters)
            return {":".join(map(str, counts)): counts}
        return {ratio: self._ratio(ratio) for ratio in self.ratios}

    def _ratio(self, text: str) -> tuple[int, ...]:
        parts = text.split(":")
        if len(parts) != len(self.clusters) or not all(part.isdigit() for part in parts):
            raise ValueError(
                f"a ratio gives the nodes of each of the {len(self.clusters)} clusters, "
                f"such as '{':'.join(['8'] * len(self.clusters))}'; got {text!r}"
            )
        return tuple(int(part) for part in parts)


class Train(Section):
    """What a node does between two exchanges."""

    steps: int | None = Field(default=None, ge=1)  # local steps a round (default 10)
    epochs: float | None = Field(default=None, gt=0)  # instead of steps
    batch: int = Field(default=8, ge=1)
    lr: float = Field(default=0.05, gt=0)
    optimizer: Spec = "sgd"
    objective: Literal["auto", "classification", "regression", "reconstruction"] = "auto"
    precision: Literal["auto", "float32", "tf32", "bf16", "float64"] = "auto"
    common_start: bool = False  # all nodes start from the same model

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give `steps` or `epochs`, not both")
        return self


class AlgorithmTable(BaseModel):
    """An algorithm, its options, and what it changes in [train]."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    label: str = ""
    train: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The algorithm's own hyper-parameters."""
        return dict(self.model_extra or {})


class ModelTable(BaseModel):
    """A model, its options, and the layers that are its head."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "small-cnn"
    head: list[str] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Name and options."""
        return {"name": self.name, **(self.model_extra or {})}


class Evaluate(Section):
    """When and how models are judged."""

    every: int = Field(default=10, ge=1)  # rounds
    samples: int = Field(default=0, ge=0)  # test samples of a cluster; 0: all
    alpha: float = Field(default=2 / 3, ge=0, le=1)  # of fair accuracy


class Runtime(Section):
    """How the run is carried out."""

    engine: Literal["simulate"] = "simulate"
    link: Literal["direct", "memory"] = "direct"  # memory: one block a node, real frames
    path: Literal["auto", "loop", "stacked", "fused"] = "auto"  # how rows train
    models: bool = True  # write every node's personal model
    checkpoint_every: int = Field(default=0, ge=0)  # rounds; 0: at every evaluation


class Config(Section):
    """A whole run."""

    experiment: Experiment = Experiment()
    data: Data = Data()
    model: ModelTable = ModelTable()
    train: Train = Train()
    algorithm: list[AlgorithmTable] = Field(
        default=[AlgorithmTable(name="epidemic"), AlgorithmTable(name="facade")], min_length=1
    )
    evaluate: Evaluate = Evaluate()
    runtime: Runtime = Runtime()

    @model_validator(mode="after")
    def _labels(self) -> Config:
        labels = [self.label(table) for table in self.algorithm]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two algorithms are labelled {label!r}; give each a `label`")
            if not label or any(c in label for c in "/\\\0") or label.startswith("."):
                raise ValueError(f"the label {label!r} cannot be part of a file name")
        return self

    @staticmethod
    def label(table: AlgorithmTable) -> str:
        """What an algorithm is called in tables."""
        return table.label or table.name

    def train_of(self, table: AlgorithmTable) -> Train:
        """[train] with an algorithm's changes."""
        merged = {**self.train.model_dump(exclude_none=True), **table.train}
        if "steps" in table.train or "epochs" in table.train:
            for key in {"steps", "epochs"} - set(table.train):
                merged.pop(key, None)
        return _checked(Train, merged, f"algorithm.{self.label(table)}.train")

    def to_toml(self) -> str:
        """The resolved configuration; loading it gives this configuration again."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def load(path: Path | None = None, changes: Sequence[str] = ()) -> Config:
    """The configuration of a file (none: the built-in demo) with `a.b=c` changes."""
    text = demo_text() if path is None else _read(path)
    where = "the demo" if path is None else str(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not valid TOML: {error}") from None
    for change in changes:
        _change(table, change)
    return parse(table, where if path else "")


def parse(table: Mapping[str, Any], where: str = "") -> Config:
    """A configuration from plain values."""
    return _checked(Config, table, where)


def demo_text() -> str:
    """The built-in demo as TOML."""
    return (Path(__file__).parent / "demo.toml").read_text()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {str(path)!r}: {error}") from None


def _change(table: dict[str, Any], change: str) -> None:
    """Apply one `a.b=c`; algorithms may be named by label or name."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise InputError(f"--set takes key=value, such as train.lr=0.01; got {change!r}")
    *parents, last = key.strip().split(".")
    here: Any = table
    for name in parents:
        here = _child(here, name, change)
    if not isinstance(here, dict):
        raise InputError(f"--set {change}: {'.'.join(parents)} is not a table")
    here[last] = _value(text.strip())


def _child(here: Any, name: str, change: str) -> Any:
    if isinstance(here, dict):
        return here.setdefault(name, {})
    if isinstance(here, list):
        for number, entry in enumerate(here):
            if name in (str(number), entry.get("label"), entry.get("name")):
                return entry
        known = [str(entry.get("label") or entry.get("name")) for entry in here]
        raise unknown("entry", name, known, f"--set {change}")
    raise InputError(f"--set {change}: {name!r} is not a table")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(kind: type[S], table: Mapping[str, Any], where: str) -> S:
    try:
        return kind.model_validate(dict(table))
    except ValidationError as error:
        raise InputError(_explain(kind, error, where)) from None


def _explain(kind: type[BaseModel], error: ValidationError, where: str) -> str:
    """The first problem in one line: where, what was wrong, what was got, what to do."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    prefix = f"{where}: " if where else ""
    if first["type"] == "extra_forbidden":
        *parents, _ = first["loc"]
        fields = _fields_at(kind, parents)
        return prefix + str(
            unknown("key", path, [".".join(map(str, [*parents, f])) for f in fields])
        )
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{prefix}{path + ': ' if path else ''}{message}"
    return f"{prefix}{path}: {message[0].lower() + message[1:]}, got {first['input']!r}"


def _fields_at(kind: Any, path: Sequence[int | str]) -> list[str]:
    """The keys a table may have."""
    for name in path:
        if isinstance(name, str) and name in kind.model_fields:
            annotation = kind.model_fields[name].annotation
            inner = getattr(annotation, "__args__", None)
            kind = inner[0] if inner else annotation
    return list(getattr(kind, "model_fields", {}))
