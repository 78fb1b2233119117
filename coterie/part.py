"""One part of a run: an algorithm on a stack of replicas, played, recorded and checkpointed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from coterie.choices import Choices, Picks
from coterie.config import Config
from coterie.core.algorithm import Algorithm
from coterie.core.federated import Federated
from coterie.core.nodes import Nodes
from coterie.data.holdings import Replica
from coterie.examination import Examiner
from coterie.family import alive, family_records
from coterie.metrics import settlement
from coterie.metrics.records import head_records, overall, records
from coterie.metrics.target import rounds_to_target
from coterie.notes import Notes, latest
from coterie.personal import write_models
from coterie.runtimes import checkpoint
from coterie.runtimes.ahead import drawing_ahead
from coterie.runtimes.journal import Journal
from coterie.runtimes.lockstep import DirectExchange, FrameExchange
from coterie.runtimes.simulate import Simulated, simulation_of

Metrics = dict[str, Any]


class Stopped(Exception):
    """The run was asked to stop; everything so far is saved."""


@dataclass
class Watch:
    """Callbacks of somebody who watches a run; the default watches nothing."""

    part: Callable[[str, int, int], None] = lambda name, done, rounds: None  # a part begins
    round: Callable[[int], None] = lambda done: None
    accuracy: Callable[[dict[str, float]], None] = lambda clusters: None  # mean by cluster
    stop: Callable[[], bool] = lambda: False  # asked between rounds
    plan: Callable[[str], None] = lambda text: None  # what will be stacked, a line a part
    early: Callable[[str], None] = lambda text: None  # a part ends before its last round, and why


@dataclass(frozen=True)
class Part:
    """One algorithm on one stack."""

    name: str  # of its files
    label: str  # of the replicas that have none of their own
    algorithm_name: str
    oracle: bool
    algorithm: Algorithm
    nodes: Nodes
    replicas: tuple[Replica, ...]
    clusters: tuple[tuple[str, ...], ...]  # per replica, the true cluster of every node
    parity_reasons: tuple[str | None, ...]  # per replica, why clusters cannot be compared
    abandoned: tuple[tuple[Metrics, ...], ...] = ()  # per replica, starts that did not settle
    newcomers: Nodes | None = None  # nodes that do not train
    newcomer_clusters: tuple[tuple[str, ...], ...] = ()  # as `clusters`


class PartRun:
    """A part on its way through the rounds."""

    def __init__(self, config: Config, part: Part, out: Path, watch: Watch) -> None:
        self.config = config
        self.part = part
        self.out = out
        self.watch = watch
        self.rounds = config.experiment.rounds
        self.simulation = make_simulation(config, part)
        self.examiner = Examiner(part, self.simulation, config.evaluate.alpha)
        self.journal = Journal(self._file("jsonl"))
        self.metrics: list[Metrics] = []  # latest, one per replica
        self.before: list[Metrics] | None = None  # before the final all-reduce
        self.unseen: list[Metrics | None] = [None] * len(part.replicas)  # of newcomers, latest
        self.everywhere: list[Metrics] = []  # on the test samples of all nodes, in the end
        self.by_tests: list[Metrics] = []  # of what tests would pick, in the end
        self.notes = Notes([self._where(replica) for replica in part.replicas])
        self.choices = Choices(self.notes.where)
        self.picks = Picks(self.notes.where, part.clusters)
        self.reached: set[int] = set()  # replicas whose accuracy was at the target
        self.seconds = 0.0

    def _file(self, suffix: str) -> Path:
        return self.out / "checkpoints" / f"{self.part.name}.{suffix}"

    def play(self) -> list[Metrics]:
        """All rounds, from the checkpoint where there is one; returns the results."""
        finished = checkpoint.read_results(self._file("done.json"), self.rounds)
        if finished is not None:
            self.watch.part(self.part.name, self.rounds, self.rounds)
            return finished
        if self.watch.stop():  # asked for in the last round of the part before
            raise Stopped([])
        first = self._begin()
        self.watch.part(self.part.name, first, self.rounds)
        with drawing_ahead(self.part.nodes.population, self.rounds):
            results = self._end(self._rounds(first))
        done = {"rounds": self.rounds, "results": results}
        checkpoint.write_atomically(self._file("done.json"), json.dumps(done, indent=1).encode())
        return results

    def _rounds(self, first: int) -> int:
        """Play rounds from `first` on; returns how many there are in the end."""
        for t in range(first, self.rounds):
            if self._arrived():
                target = f"{self.config.evaluate.target:g}%"
                self.watch.early(f"{self.part.name}: all seeds at {target}, ends after round {t}")
                return t
            self._round(t)
            if self.watch.stop() and t + 1 < self.rounds:
                self._stop(t + 1)
        return self.rounds

    def _stop(self, done: int) -> NoReturn:
        """Save, and test what there is, which a resumed run forgets."""
        self._save(done)
        if done % self.config.evaluate.every:
            self.watch.early(f"{self.part.name}: saved after round {done}; testing its models")
            self._evaluate(done, "round")
        raise Stopped(self._results(done))

    def _arrived(self) -> bool:
        """Whether the run ends early, since every replica has been at the target."""
        return self.config.evaluate.stop and len(self.reached) == len(self.part.replicas)

    def _begin(self) -> int:
        """Start afresh, or from the checkpoint; returns the number of rounds done."""
        self.simulation.start()
        path = self._file("safetensors")
        if not path.exists():
            self.journal.cut(0)
            self.journal.append(self._population())
            return 0
        note = checkpoint.read_note(path)
        self.simulation.load(path)
        self.journal.cut(note["records"])
        self.seconds = note["seconds"]
        self.metrics, self.unseen = note["metrics"], note.get("unseen", self.unseen)
        self.choices.resume(self.simulation.chosen())
        tests, replicas = self.journal.read("overall"), range(len(self.part.replicas))
        self.reached = {r for r in replicas if self._reached(r, tests) is not None}
        return int(note["round"])

    def _round(self, t: int) -> None:
        started = time.perf_counter()
        self.simulation.round(t)
        done = t + 1
        self.watch.round(done)  # first, so that an evaluation is shown with the round it follows
        self.choices.keep(done, self.simulation.chosen())
        self.picks.keep(done, self.simulation.picked())
        self.notes.keep(done, self.simulation.notes())
        self.journal.append(family_records(self.simulation.lineage(), done, self.notes.where))
        if done % self.config.evaluate.every == 0:
            self._evaluate(done, "round")
        self.seconds += time.perf_counter() - started
        every = self.config.runtime.checkpoint_every or self.config.evaluate.every
        if done == self.rounds or done % every == 0:
            self._save(done)

    def _end(self, done: int) -> list[Metrics]:
        """The last evaluation, and another one after the algorithm's final program."""
        started = time.perf_counter()
        if done % self.config.evaluate.every or not self.metrics:
            self._evaluate(done, "round")
        sent = self.simulation.exchange.sent.clone()
        if self.simulation.finish(done):
            self.before = self.metrics
            self._evaluate(done, "final")
            self.simulation.exchange.sent = sent  # an all-reduce is not training traffic
        if self.config.evaluate.everywhere:
            self.everywhere = [one.metrics for one in self.examiner.everywhere()]
        if self.config.evaluate.by_tests:
            self.by_tests = [one.metrics for one in self.examiner.by_tests()]
        self.seconds += time.perf_counter() - started
        if self.config.runtime.models:
            write_models(self.simulation.personal(), self._model_file)
        return self._results(done)

    def _save(self, done: int) -> None:
        self._write_choices()
        note = {
            "round": done,
            "records": self.journal.sync(),
            "seconds": self.seconds,
            "metrics": self.metrics,
            "unseen": self.unseen,
        }
        self.simulation.save(self._file("safetensors"), note)

    def _where(self, replica: Replica) -> dict[str, Any]:
        label = replica.label or self.part.label
        return {"label": label, "scenario": replica.scenario, "seed": replica.seed}

    def _population(self) -> list[Metrics]:
        return [
            {
                "kind": "population",
                "scenario": replica.scenario,
                "seed": replica.seed,
                "clusters": list(names),
            }
            for replica, names in zip(self.part.replicas, self.part.clusters, strict=True)
        ]

    def _write_choices(self) -> None:
        """Write what nodes chose, whom they picked, and what a server noted."""
        for found in (self.choices, self.picks, self.notes):
            self.journal.append(found.taken())

    def _evaluate(self, done: int, phase: str) -> None:
        """Test every node's personal model, record it, and keep the metrics."""
        self._write_choices()
        sent = self.simulation.exchange.sent.numpy().reshape(-1, self.part.nodes.n)
        tested = self.examiner.own()
        self.metrics = [one.metrics for one in tested]
        self.reached |= {n for n, found in enumerate(self.metrics) if self._is_there(found)}
        for number, one in enumerate(tested):
            where, nodes = self._when(number, done, phase), (one.accuracies, one.losses)
            self.journal.append(records(where, one.metrics, one.clusters, *nodes, sent[number]))
        for number, one in enumerate(self.examiner.newcomers()):
            self.unseen[number] = one.metrics
            known = {**self._when(number, done, phase), **overall(one.metrics, one.losses)}
            self.journal.append([{"kind": "unseen", **known}])
        if self.config.evaluate.heads:
            self._note_heads(done, phase)
        self.watch.accuracy(self._mean_by_cluster())

    def _when(self, number: int, done: int, phase: str) -> dict[str, Any]:
        return {**self._where(self.part.replicas[number]), "round": done, "phase": phase}

    def _note_heads(self, done: int, phase: str) -> None:
        """Record how well every head does on the train data of each cluster's nodes."""
        for number, losses in enumerate(self.examiner.heads()):
            where, names = self._when(number, done, phase), list(self.part.clusters[number])
            self.journal.append(head_records(where, losses, names))

    def _mean_by_cluster(self) -> dict[str, float]:
        """The mean of the latest metrics over replicas."""
        key = "accuracy" if self.metrics[0]["accuracy"] is not None else "mse"
        names = dict.fromkeys(name for metrics in self.metrics for name in metrics[key])
        values = {
            name: [m[key][name] for m in self.metrics if m[key].get(name) is not None]
            for name in names
        }
        return {name: float(np.mean(found)) for name, found in values.items() if found}

    def _results(self, done: int) -> list[Metrics]:
        """One entry of `summary.json` per replica."""
        history = {kind: self.journal.read(kind) for kind in ("choice", "note", "overall")}
        return [self._result(number, done, history) for number in range(len(self.metrics))]

    def _result(self, number: int, done: int, history: dict[str, list[Metrics]]) -> Metrics:
        part, replica = self.part, self.part.replicas[number]
        sent = self.simulation.exchange.sent.reshape(-1, part.nodes.n)[number]
        metrics = self.metrics[number]
        abandoned = list(part.abandoned[number]) if part.abandoned else []
        names = part.newcomer_clusters
        return {
            **self._where(replica),
            "algorithm": part.algorithm_name,
            "oracle": part.oracle,
            "nodes": part.nodes.n,
            "rounds": done,
            "metric": "mse" if metrics["accuracy"] is None else "accuracy",
            **metrics,
            "bytes_per_node": float(sent.double().mean()),
            "server_bytes": self._server_bytes(number),
            "rounds_to_target": self._reached(number, history["overall"]),
            **self._settlement(number, done, history["choice"]),
            "models": alive(self.simulation.lineage(), number),
            "chosen": settlement.word(name_of(part.algorithm)),
            "restarts": len(abandoned),
            "abandoned": abandoned,
            "train_seconds": self.seconds / len(part.replicas),
            "parity_reason": part.parity_reasons[number],
            "before_all_reduce": None if self.before is None else self.before[number],
            "unseen": self.unseen[number],
            "newcomers": dict(Counter(names[number])) if names else {},
            "everywhere": self.everywhere[number] if self.everywhere else None,
            "by_tests": self.by_tests[number] if self.by_tests else None,
            "notes": latest(history["note"], self._where(replica)),
        }

    def _server_bytes(self, number: int) -> float | None:
        """What the server sent, where there is one."""
        if not isinstance(self.part.algorithm, Federated):
            return None
        return float(self.simulation.exchange.server_sent[number])

    def _reached(self, number: int, tests: list[Metrics]) -> float | None:
        """After how many rounds the accuracy was there that was asked for."""
        mine, target = self._where(self.part.replicas[number]), self.config.evaluate.target
        seen = ((r["round"], r["accuracy"]) for r in tests if mine.items() <= r.items())
        return rounds_to_target(target, seen)

    def _is_there(self, found: Metrics) -> bool:
        return (found["accuracy_all"] or 0.0) >= self.config.evaluate.target > 0

    def _settlement(self, number: int, done: int, history: list[Metrics]) -> Metrics:
        """Whether and when the choices settled, and how well they match the clusters."""
        mine = self._where(self.part.replicas[number])
        changes = [r for r in history if mine.items() <= r.items() and r["round"] <= done]
        return settlement.verdict(
            [r["choice"] for r in changes],
            [r["round"] for r in changes],
            self.part.clusters[number],
            options_of(self.part.algorithm),
            name_of(self.part.algorithm),
        )

    def _model_file(self, key: int) -> Path:
        replica, n = self.part.replicas[key // self.part.nodes.n], self.part.nodes.n
        scenario = replica.scenario.replace(":", "-")
        label = replica.label or self.part.label
        folder = self.out / "models" / label / scenario / f"seed-{replica.seed}"
        return folder / f"node-{key % n}.safetensors"


def make_simulation(config: Config, part: Part) -> Simulated:
    """The population of a part, ready to start."""
    n, least = part.nodes.n, config.runtime.threshold
    if config.runtime.link != "memory":
        whole = DirectExchange(n, len(part.replicas), least)
        return simulation_of(part.algorithm, [part.nodes], whole)
    blocks = [part.nodes[row] for row in torch.arange(n).split(1)]
    return simulation_of(part.algorithm, blocks, FrameExchange(n, threshold=least))


def name_of(algorithm: Algorithm) -> tuple[str, str]:
    """What to call what nodes choose: heads, whole models, or models of their own making."""
    if getattr(algorithm, "heads", 0):
        return settlement.HEADS
    return settlement.WHOLE if getattr(algorithm, "models", 0) else settlement.MODELS


def options_of(algorithm: Algorithm) -> int:
    """Among how many heads or models the nodes of an algorithm choose; 0: they do not."""
    return int(getattr(algorithm, "heads", 0) or getattr(algorithm, "models", 0))
