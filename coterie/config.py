"""A run as validated models: TOML in, every key checked before anything is read or trained."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from coterie.changes import apply_change, choose
from coterie.errors import InputError, unknown
from coterie.tables import PeerTable, Runtime, Section, Tracking, check_ids, without_peers


def import_path(value: Any) -> Any:
    """`package.module:function` of a function, so that a file can name it; other values as is."""
    if not callable(value):
        return value
    name = getattr(value, "__qualname__", "<unnamed>")
    if "<" in name:
        raise ValueError(
            f"a run names functions by import path, and {value!r} has none; "
            "define it with `def` at the top of a module"
        )
    return f"{value.__module__}:{name}"


def _named(value: Any) -> Any:
    """A name, or a table with a name, whose function becomes its import path."""
    table = isinstance(value, dict) and "name" in value
    plain = {**value, "name": import_path(value["name"])} if table else import_path(value)
    if not isinstance(plain["name"] if table else plain, str):
        raise ValueError(f"expected a name, or a table with a name and options, got {value!r}")
    return plain


Spec = Annotated[str | dict[str, Any], BeforeValidator(_named)]  # options beside the name


MOST_SEEDS = 100_000  # as a number; a list may have more


def _fits_file_name(text: str) -> bool:
    return bool(text) and not text.startswith(".") and not any(c in text for c in "/\\\0")


class Experiment(Section):
    """What is run, how often and how long."""

    name: str = "run"
    seeds: list[int] = Field(default=[1, 2, 3], min_length=1)
    rounds: int = Field(default=100, ge=1)

    @field_validator("name")
    @classmethod
    def _folder(cls, value: str) -> str:
        if not _fits_file_name(value):
            raise ValueError(f"the run folder gets this name, and {value!r} cannot be one")
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if type(value) is int and not 1 <= value <= MOST_SEEDS:
            raise ValueError(f"expected at least 1 seed, and at most {MOST_SEEDS}, got {value}")
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
    shifts: list[Spec] = Field(default=[])


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
    ratios: list[str] = Field(default=[])  # scenarios such as "30:2", instead of `nodes`
    partition: Spec = "iid"
    holdout: float = Field(default=0.1, ge=0, lt=1)  # of each node's samples, for validation
    test: float = Field(default=0, ge=0, lt=1)  # of its samples, for its tests; 0: the test split
    own: bool = False  # real peers: the source holds this peer's samples alone, nothing is dealt
    classes: int = Field(default=0, ge=0)  # of own samples, where a peer may lack some; 0: counted
    shape: list[int] = Field(default=[])  # of a sample, for a server that has none

    @model_validator(mode="after")
    def _counts(self) -> Data:
        if len({cluster.name for cluster in self.clusters}) != len(self.clusters):
            raise ValueError("clusters need different names")
        if len(set(self.ratios)) != len(self.ratios):
            raise ValueError(f"ratios need to be different, got {self.ratios}")
        if self.holdout + self.test >= 1:
            raise ValueError(f"holdout {self.holdout:g} and test {self.test:g} leave nothing")
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
        if len(parts) != len(self.clusters) or not all(part.isdecimal() for part in parts):
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
    lr: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    optimizer: Spec = "sgd"
    objective: Literal["auto", "classification", "regression", "reconstruction"] = "auto"
    precision: Literal["auto", "float32", "tf32", "bf16", "float64"] = "auto"
    common_start: bool = False  # all nodes start from the same model

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give `steps` or `epochs`, not both")
        return self


class ModelTable(BaseModel):
    """A model, its options, and the layers that are its head."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, BeforeValidator(import_path)] = "small-cnn"
    head: list[str] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Name and options."""
        return {"name": self.name, **(self.model_extra or {})}


class AlgorithmTable(BaseModel):
    """An algorithm, its options, what it changes in [train], and a model of its own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    label: str = ""
    train: dict[str, Any] = {}
    model: ModelTable | None = None  # instead of [model]

    @property
    def options(self) -> dict[str, Any]:
        """The algorithm's own hyper-parameters."""
        return dict(self.model_extra or {})


class Evaluate(Section):
    """When and how models are judged."""

    every: int = Field(default=10, ge=1)  # rounds
    samples: int = Field(default=0, ge=0)  # test samples of a cluster; 0: all
    target: float = Field(default=0.0, ge=0, le=100)  # accuracy of all, percent: how many rounds
    stop: bool = False  # once all seeds of a stack have reached the target
    unseen_clients: float = Field(default=0.0, ge=0, lt=1)  # share of nodes kept from training
    everywhere: bool = False  # in the end, test every model on the test samples of all nodes too
    by_tests: bool = False  # in the end, also let tests pick heads or models: to compare alone
    heads: bool = False  # record the train loss of every head, by cluster
    alpha: float = Field(default=2 / 3, ge=0, le=1)  # of fair accuracy
    restart: int = Field(default=0, ge=0)  # round after which unsettled runs start again; 0: never
    restarts: int = Field(default=3, ge=1)  # at most, of one run


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
    tracking: Tracking = Tracking()
    peers: Annotated[list[PeerTable], AfterValidator(check_ids)] = Field(default=[])

    if TYPE_CHECKING:  # tables may be given as plain dicts

        def __init__(self, **tables: Any) -> None: ...

    @field_validator("algorithm", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        return [_table(entry) for entry in value] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _labels(self) -> Config:
        labels = [self.label(table) for table in self.algorithm]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two algorithms are labelled {label!r}; give each a `label`")
            if not _fits_file_name(label):
                raise ValueError(
                    f"the label {label!r} cannot be part of a file name; give another `label`"
                )
        return self

    @model_validator(mode="after")
    def _ends(self) -> Config:
        if self.evaluate.stop and not self.evaluate.target:
            raise ValueError("evaluate.stop: there is no evaluate.target to stop at")
        if self.evaluate.restart >= self.experiment.rounds:
            raise ValueError(
                f"evaluate.restart: expected a round before the last, {self.experiment.rounds}, "
                f"got {self.evaluate.restart}"
            )
        if self.evaluate.restart and self.runtime.engine == "peer":
            raise ValueError(
                "evaluate.restart: real peers do not know the true clusters that would decide; "
                "use 0, or simulate"
            )
        return self

    @model_validator(mode="wrap")  # the last one, so that it sees the errors of all
    @classmethod
    def _explained(
        cls, value: Any, check: ModelWrapValidatorHandler[Config], info: ValidationInfo
    ) -> Config:
        try:
            return check(value)
        except ValidationError as error:
            raise InputError(explain(cls, error, (info.context or {}).get("where", ""))) from None

    @staticmethod
    def label(table: AlgorithmTable) -> str:
        """What an algorithm is called in tables; one in a user's own file: its class."""
        return table.label or table.name.rpartition(":")[2]

    def train_of(self, table: AlgorithmTable) -> Train:
        """[train] with an algorithm's changes."""
        merged = {**self.train.model_dump(exclude_none=True), **table.train}
        if "steps" in table.train or "epochs" in table.train:
            for key in {"steps", "epochs"} - set(table.train):
                merged.pop(key, None)
        try:
            return Train.model_validate(merged)
        except ValidationError as error:
            where = f"algorithm.{self.label(table)}.train"
            raise InputError(explain(Train, error, where)) from None

    def model_of(self, table: AlgorithmTable) -> ModelTable:
        """The model that an algorithm trains: its own, or [model]."""
        return table.model or self.model

    def to_toml(self) -> str:
        """The resolved configuration; loading it gives this configuration again."""
        return tomli_w.dumps(without_peers(self.model_dump(exclude_none=True), Config))


def _table(entry: Any) -> Any:
    """The table that stands for an algorithm given as an object, such as `Facade(heads=2)`."""
    if not dataclasses.is_dataclass(entry):
        return entry
    from coterie.core import algorithms

    return algorithms.spec(entry)


def load(
    path: Path | None = None, changes: Sequence[str] = (), algorithms: Sequence[str] = ()
) -> Config:
    """The configuration of a file (none: the demo), some algorithms alone, `a.b=c` changes."""
    text = demo_text() if path is None else _read(path)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path or 'the demo'} is not valid TOML: {error}") from None
    table = _changed(text, changes, algorithms)
    try:
        return parse(table)
    except InputError:
        return parse(table, _culprit(text, changes, algorithms) or str(path or "the demo"))


def _changed(text: str, changes: Sequence[str], algorithms: Sequence[str]) -> dict[str, Any]:
    table = tomllib.loads(text)
    if algorithms:
        choose(table, algorithms, _lists())
    for change in changes:
        apply_change(table, change, _lists())
    return table


def _culprit(text: str, changes: Sequence[str], algorithms: Sequence[str]) -> str:
    """The last change before which the configuration was right; empty: the file is wrong."""
    for number in reversed(range(len(changes))):
        try:
            parse(_changed(text, changes[:number], algorithms))
            return f"--set {changes[number]}"
        except InputError:
            continue
    return ""


def parse(table: Mapping[str, Any], where: str = "") -> Config:
    """A configuration from plain values; `where` they come from is said in errors."""
    return Config.model_validate(dict(table), context={"where": where})


def demo_text() -> str:
    """The built-in demo as TOML."""
    return (Path(__file__).parent / "demo.toml").read_text()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {str(path)!r}: it is not text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {str(path)!r}: {reason}") from None


def _lists() -> dict[str, Any]:
    """The lists that a change starts from where the file has none."""
    whole = Config().model_dump(exclude_none=True)
    return {"algorithm": whole["algorithm"], "clusters": whole["data"]["clusters"]}


def explain(kind: type[BaseModel], error: ValidationError, where: str) -> str:
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
    prefix += f"{path}: " if path else ""
    if first["type"] == "value_error":
        return prefix + first["msg"].removeprefix("Value error, ")
    from coterie.core.registry import in_words

    return prefix + in_words(first)


def _fields_at(kind: Any, path: Sequence[int | str]) -> list[str]:
    """The keys a table may have."""
    for name in path:
        if isinstance(name, str) and name in kind.model_fields:
            annotation = kind.model_fields[name].annotation
            inner = getattr(annotation, "__args__", None)
            kind = inner[0] if inner else annotation
    return list(getattr(kind, "model_fields", {}))
