"""What one peer writes down: who it is, every score and choice, and its model at the end.

A line of JSON each, cut back to the checkpoint when the peer starts again:

    member   who it is, and all that is needed to put its scores beside those of others
    score    its personal model on its own test samples, after a round
    choice   the head it chose, whenever it chose another
    picked   the peers it averaged with in a round, and from how many groups they were drawn
    model    a model that a round brought forth, and `alive`, how many, where there is a family
    note     numbers by name of a round, at a server that has any
    skip     rounds it left out because the others had moved on
    end      how far it came, in how many seconds and bytes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.engine import Scores
from coterie.family import family_records
from coterie.metrics.accuracy import per_node
from coterie.metrics.evaluation import plain
from coterie.notes import Notes
from coterie.part import name_of, options_of
from coterie.peers.member import Member
from coterie.personal import personal_file
from coterie.runtimes.checkpoint import write_atomically
from coterie.runtimes.journal import Journal
from coterie.runtimes.plan import Outcome, Report

NAME = "diary.jsonl"


class Diary:
    """The records of one peer, and what it knows of its own progress."""

    def __init__(
        self, member: Member, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.member = member
        self.folder = folder
        self.clock = clock
        self.journal = Journal(folder / "checkpoints" / NAME)
        self.accuracy: float | None = None  # percent, latest
        self.loss: float | None = None
        self.choice: int | None = None
        self.model: Path | None = None  # where it lies in the end
        self.first, self.done = 0, 0  # rounds
        self.earlier = 0.0  # seconds before this process
        self.started = clock()

    @property
    def seconds(self) -> float:
        """How long this peer has been in the run, waiting included."""
        return self.earlier + self.clock() - self.started

    @property
    def left(self) -> float | None:
        """Seconds until the end if rounds take as long as they did; None: nobody knows."""
        rounds = self.done - self.first
        if not rounds:
            return None
        each = (self.clock() - self.started) / rounds
        return each * (self.member.config.experiment.rounds - self.done)

    def begin(self, t: int, note: dict[str, Any]) -> None:
        """The run begins at round t; a note of a checkpoint says what was written until then."""
        self.journal.cut(note.get("records", 0))
        if not note:
            self.journal.append([self._header()])
        self.earlier = note.get("seconds", 0.0)
        self.accuracy, self.loss = note.get("accuracy"), note.get("loss")
        self.choice = note.get("choice")
        self.first = self.done = t
        self.started = self.clock()

    def round(self, report: Report) -> None:
        """Write down what a round gave."""
        self.done = report.round
        where = {"round": report.round, "phase": report.phase}
        if report.choice is not None and report.choice != self.choice:
            self.choice = report.choice
            self.journal.append([{"kind": "choice", "round": report.round, "choice": self.choice}])
        if report.picked is not None:
            self.journal.append([{"kind": "picked", "round": report.round, **vars(report.picked)}])
        self.journal.append(family_records(report.lineage, report.round, [self._where()]))
        notes = Notes([self._where()])
        notes.keep(report.round, report.notes)
        self.journal.append(notes.taken())
        if report.scores is not None and self.member.cluster:
            self.journal.append([self._score(where, report.scores, report.bytes)])

    def skip(self, t: int, to: int) -> None:
        """Rounds were left out."""
        self.journal.append([{"kind": "skip", "round": t, "to": to}])

    def note(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "records": self.journal.sync(),
            "seconds": self.seconds,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "choice": self.choice,
        }

    def end(self, outcome: Outcome) -> None:
        """The last record, and the personal model."""
        last = {"round": outcome.rounds, "bytes": outcome.bytes, "seconds": self.seconds}
        self.journal.append([{"kind": "end", **last, "finished": outcome.finished}])
        self.journal.sync()
        if self.member.config.runtime.models and outcome.personal is not None:
            self.model = self.folder / "models" / f"node-{self.member.id}.safetensors"
            write_atomically(self.model, personal_file(self.member.nodes, outcome.personal[0]))

    def _where(self) -> dict[str, Any]:
        (replica,) = self.member.part.replicas
        return {
            "label": self.member.part.label,
            "scenario": replica.scenario,
            "seed": replica.seed,
        }

    def _header(self) -> dict[str, Any]:
        part = self.member.part
        return {
            "kind": "member",
            "node": self.member.id,
            "cluster": self.member.cluster,
            **self._where(),
            "algorithm": part.algorithm_name,
            "oracle": part.oracle,
            "heads": options_of(part.algorithm),
            "chosen": name_of(part.algorithm),
            "parity_reason": part.parity_reasons[0],
        }

    def _score(self, where: dict[str, Any], scores: Scores, sent: int) -> dict[str, Any]:
        confusion = None if scores.confusion is None else scores.confusion.cpu().numpy()
        self.loss = plain(float(scores.loss.double()[0]))
        if confusion is not None:
            self.accuracy = plain(per_node(confusion)[0])
        counts = None if confusion is None else np.asarray(confusion[0]).tolist()
        return {"kind": "score", **where, "loss": self.loss, "confusion": counts, "bytes": sent}
