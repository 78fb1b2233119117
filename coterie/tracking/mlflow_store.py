"""MLflow: every result of a run folder as an MLflow run, with its parameters, metrics and files.

It reads only the run folder, so that all runtimes are tracked alike. MLflow is asked before the
first round whether it can be reached, and told everything after the last.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coterie.errors import InputError

SQLITE = "sqlite"  # short for a file in the current folder
FILES = ("config.toml", "environment.json", "summary.json", "records.jsonl", "dag.jsonl")
LONGEST = 500  # characters of a parameter that every store takes
AT_ONCE = 100  # parameters or metrics of one request
KEY = "coterie.result"  # the tag by which a result is found again

Record = Mapping[str, Any]


class Tracker:
    """An experiment in an MLflow store."""

    def __init__(self, uri: str, experiment: str) -> None:
        self.uri = f"sqlite:///{Path('mlflow.db').resolve()}" if uri == SQLITE else uri
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # else it tells its makers
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise InputError(
                "tracking.mlflow: needs MLflow: pip install 'coterie[mlflow]'"
            ) from None
        for talker in ("mlflow", "alembic"):  # MLflow sets its own level when it is imported
            logging.getLogger(talker).setLevel(logging.WARNING)
        try:
            self.client = MlflowClient(tracking_uri=self.uri)
            self.experiment: str = self._known_experiment(experiment) or self._made(experiment)
        except Exception as error:  # whatever a database, a driver or a server raises
            raise self._unreachable(error) from None

    def _known_experiment(self, name: str) -> str | None:
        found = self.client.get_experiment_by_name(name)
        return found.experiment_id if found else None

    def _made(self, name: str) -> str:
        """A new experiment, unless another peer of the run was faster."""
        try:
            made: str = self.client.create_experiment(name)
            return made
        except Exception:
            found = self._known_experiment(name)
            if found is None:
                raise
            return found

    def _unreachable(self, error: Exception) -> InputError:
        reason = " ".join(str(error).split())[:200]
        return InputError(
            f"tracking.mlflow: {self.uri!r} cannot be used: {reason}; check the URI, that "
            "the server runs, and that its driver is installed"
        )

    def log(self, folder: Path, who: str = "") -> int:
        """Tell the store every result of a run folder that it does not know; returns how many.

        `who` says whose results they are, where a run has a folder for each peer.
        """
        try:
            return sum(self._result(folder, result, who) for result in _results(folder))
        except InputError:
            raise
        except Exception as error:  # the run itself is complete
            raise self._unreachable(error) from None

    def _result(self, folder: Path, result: Record, who: str) -> bool:
        """Log one result; False where the store has it already."""
        name = f"{result['label']} · {result['scenario']} · seed {result['seed']}"
        name += f" · {who}" if who else ""
        key = f"{folder.resolve()} · {name} · {result['rounds']} rounds"
        if self._known(key):
            return False
        tags = {KEY: key, "coterie.algorithm": result["algorithm"]}
        run = self.client.create_run(self.experiment, tags=tags, run_name=name).info.run_id
        self._params(run, parameters(folder, result))
        self._metrics(run, measured(folder, result))
        for file in FILES:
            if (folder / file).exists():
                self.client.log_artifact(run, str(folder / file))
        self.client.set_terminated(run)
        return True

    def _known(self, key: str) -> bool:
        text = key.replace("'", "\\'")
        ours = f"tags.`{KEY}` = '{text}' and attributes.status = 'FINISHED'"
        return bool(self.client.search_runs([self.experiment], ours, max_results=1))

    def _params(self, run: str, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        params = [Param(key, value) for key, value in values.items()]
        for start in range(0, len(params), AT_ONCE):
            self.client.log_batch(run, params=params[start : start + AT_ONCE])

    def _metrics(self, run: str, values: Iterator[tuple[str, float, int]]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(key, value, 0, step) for key, value, step in values]
        for start in range(0, len(metrics), AT_ONCE):
            self.client.log_batch(run, metrics=metrics[start : start + AT_ONCE])


def parameters(folder: Path, result: Record) -> dict[str, str]:
    """The configuration behind one result, flat; of the algorithms only its own."""
    import tomllib

    table = tomllib.loads((folder / "config.toml").read_text())
    own = [a for a in table.pop("algorithm") if (a.get("label") or a["name"]) == result["label"]]
    table |= {"algorithm": own[0] if own else {}}
    table.pop("tracking", None)
    table["experiment"] |= {"seed": result["seed"], "scenario": result["scenario"]}
    return {_name(key): str(value)[:LONGEST] for key, value in _flat(table)}


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def measured(folder: Path, result: Record) -> Iterator[tuple[str, float, int]]:
    """Name, value and round of everything measured of all nodes and of each cluster."""
    where = {key: result[key] for key in ("label", "scenario", "seed")}
    with (folder / "records.jsonl").open() as lines:
        for line in lines:
            record = json.loads(line)
            if record["kind"] in ("overall", "cluster") and where.items() <= record.items():
                yield from _numbers(record)
    for key, value in result.items():
        if type(value) in (int, float) and key not in ("seed", "rounds", "nodes"):
            yield f"result.{key}", float(value), int(result["rounds"])


def _numbers(record: Record) -> Iterator[tuple[str, float, int]]:
    prefix = f"{record['cluster']}." if record["kind"] == "cluster" else ""
    prefix += "final." if record["phase"] == "final" else ""
    for key, value in record.items():
        if type(value) in (int, float) and key not in ("seed", "round", "nodes"):
            yield _name(prefix + key), float(value), int(record["round"])


def _name(text: str) -> str:
    """A name as MLflow takes it: letters, digits and a few signs."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in text)[:250]


def _results(folder: Path) -> list[Record]:
    found: list[Record] = json.loads((folder / "summary.json").read_text())["results"]
    return found
