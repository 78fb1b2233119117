"""The run folders of an experiment: which are done, and running those that are not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from coterie import data
from coterie.config import Config
from coterie.errors import InputError
from coterie.part import Watch
from coterie.reproduce.experiment import Experiment, Part, Scale
from coterie.run import check_folder, check_names, resolved, run
from coterie.runtimes import checkpoint
from coterie.stacking import alike, read_plan


@dataclass(frozen=True)
class Task:
    """A part at its scale, and the folder it is run in."""

    part: Part
    folder: Path

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.part.config

    def state(self) -> Literal["done", "begun", "open"]:
        """Done once every seed of every label and scenario has all its rounds, or its target."""
        wanted = {
            (label, scenario, seed)
            for label, scenario in self.part.cells()
            for seed in self.config.experiment.seeds
        }
        complete = filter(self._complete, _results(self.folder))
        if wanted <= {(r["label"], r["scenario"], r["seed"]) for r in complete}:
            return "done"
        return "begun" if (self.folder / "config.toml").exists() else "open"

    def _complete(self, result: dict[str, Any]) -> bool:
        there = self.config.evaluate.stop and result.get("rounds_to_target") is not None
        return there or bool(result["rounds"] == self.config.experiment.rounds)

    def seconds(self) -> float:
        """How long the results in its folder took to train, all stacks together."""
        return sum(result.get("train_seconds") or 0.0 for result in _results(self.folder))

    def rounds_done(self) -> int:
        """The rounds of all labels that are saved, of `rounds_planned`."""
        saved = self.folder / "checkpoints"
        finished = {path.name.removesuffix(".done.json") for path in saved.glob("*.done.json")}
        notes = [
            int(checkpoint.read_note(path)["round"])
            for path in saved.glob("*.safetensors")
            if path.stem not in finished
        ]
        return len(finished) * self.config.experiment.rounds + sum(notes)

    def rounds_planned(self) -> int:
        """The rounds of all parts of the run: as planned, or as many as if all of it fits."""
        sizes = {sum(counts) for counts in self.config.data.scenarios().values()}
        plan = read_plan(self.folder)
        parts = len(alike(resolved(self.config))) * len(sizes) if plan is None else len(plan)
        return parts * self.config.experiment.rounds


def tasks(experiment: Experiment, root: Path, scale: Scale, only: Sequence[str] = ()) -> list[Task]:
    """The parts of an experiment with their folders: ROOT/EXPERIMENT/PART."""
    return [
        Task(
            replace(part, config=scale.apply(part.config)),
            root / f"{part.home}{scale.suffix()}" / part.name,
        )
        for part in experiment.chosen(only)
    ]


def check(planned: Sequence[Task]) -> list[Task]:
    """The tasks that are not done; what is wrong or missing for any is said before one starts."""
    waiting = []
    for task in planned:
        try:
            check_names(task.config)
            state = task.state()
            if state != "open":
                check_folder(task.folder, resolved(task.config), resume=True)
        except InputError as error:
            raise InputError(f"part {task.part.name!r}: {error}") from None
        waiting += [] if state == "done" else [task]
    _check_data(waiting)
    return waiting


def _check_data(waiting: Sequence[Task]) -> None:
    """Name every data set that is not here, in one message."""
    sources = [task.config.data.source for task in waiting]
    missing = []
    for source in (source for n, source in enumerate(sources) if source not in sources[:n]):
        try:
            data.require(source)
        except InputError as error:
            missing.append(str(error))
    if missing:
        raise InputError("; and ".join(missing))


def carry_out(task: Task, device: str, watch: Watch) -> None:
    """Run a task from where it is; the states of its nodes are only kept until it is done."""
    begun = (task.folder / "config.toml").exists()
    run(task.config, task.folder, device, resume=begun, watch=watch)
    for path in (task.folder / "checkpoints").glob("*.safetensors"):
        path.unlink()


def _results(folder: Path) -> list[dict[str, Any]]:
    """The results in a folder's summary; none where it has no readable one."""
    try:
        found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        results: list[dict[str, Any]] = found["results"]
        return results
    except (OSError, ValueError, KeyError, TypeError):
        return []
