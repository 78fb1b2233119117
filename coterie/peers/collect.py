"""From what peers wrote down to the records and the summary of a run, for one peer or for all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.config import Config
from coterie.family import KINDS as FAMILY
from coterie.family import write_family
from coterie.metrics import settlement
from coterie.metrics.accuracy import per_node
from coterie.metrics.evaluation import evaluate
from coterie.metrics.picks import pick_records
from coterie.metrics.records import records
from coterie.metrics.target import rounds_to_target
from coterie.notes import latest
from coterie.peers.choose import SERVER
from coterie.peers.diary import NAME
from coterie.report.summarize import aggregate
from coterie.runtimes.checkpoint import write_atomically

Record = dict[str, Any]
When = tuple[int, str]  # round, phase


@dataclass(frozen=True)
class Story:
    """The diary of one peer, sorted."""

    member: Record
    scores: dict[When, Record]
    choices: list[Record]
    end: Record | None  # None: it died, or still runs
    family: list[Record]  # the models it knew of, where there is a family
    picks: dict[int, Record]  # whom it picked, by round
    notes: list[Record]  # of a server

    @property
    def node(self) -> int:
        """The id of the peer."""
        return int(self.member["node"])

    def chose(self, t: int) -> int | None:
        """What it had chosen at the end of a round."""
        found = [r["choice"] for r in self.choices if r["round"] <= t]
        return found[-1] if found else None


def read_story(folder: Path) -> Story | None:
    """What the peer of a run folder wrote; None: it never began."""
    lines = list(_lines(folder / "checkpoints" / NAME))
    members = [line for line in lines if line["kind"] == "member"]
    if not members:
        return None
    ends = [line for line in lines if line["kind"] == "end"]
    return Story(
        member=members[-1],
        scores={(r["round"], r["phase"]): r for r in lines if r["kind"] == "score"},
        choices=[line for line in lines if line["kind"] == "choice"],
        end=ends[-1] if ends else None,
        family=[line for line in lines if line["kind"] in FAMILY],
        picks={line["round"]: line for line in lines if line["kind"] == "picked"},
        notes=[line for line in lines if line["kind"] == "note"],
    )


def _lines(path: Path) -> Iterator[Record]:
    """The records of a diary; a last line that a crash cut short is left out."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


class Collection:
    """The stories of some peers of one run, put side by side."""

    def __init__(
        self, config: Config, stories: Sequence[Story], expected: Iterable[int] = ()
    ) -> None:
        self.config = config
        self.expected = {*expected, *(story.node for story in stories)} - {SERVER}
        self.stories = sorted((s for s in stories if s.node != SERVER), key=lambda s: s.node)
        self.servers = [s for s in stories if s.node == SERVER]
        first = (self.stories or self.servers)[0].member
        self.member = first
        self.where = {key: first[key] for key in ("label", "scenario", "seed")}
        self.names = [story.member["cluster"] for story in self.stories]
        self.metrics: dict[When, Record] = {}

    @property
    def whens(self) -> list[When]:
        """The evaluations, in order; the one after the last program comes last."""
        found = {when for story in self.stories for when in story.scores}
        return sorted(found, key=lambda when: (when[0], when[1] == "final"))

    def records(self) -> Iterator[Record]:
        """All records, as a simulation writes them."""
        place = {key: self.where[key] for key in ("scenario", "seed")}
        yield {"kind": "population", **place, "clusters": self.names}
        yield from self._choices()
        yield from self._picked()
        yield from self._notes()
        for when in self.whens:
            yield from self._evaluation(when)

    def results(self) -> list[Record]:
        """The entry of `summary.json`; none where nobody was evaluated."""
        for when in self.whens:
            list(self._evaluation(when))
        if not self.metrics:
            return []
        last = self._last()
        before = [when for when in self.whens if when[1] == "round"]
        there = [story for story in self.stories if last in story.scores]
        choices = list(self._choices())
        alive = [record for record in self.family() if record["kind"] == "alive"]
        metrics = self.metrics[last]
        return [
            {
                **self.where,
                "algorithm": self.member["algorithm"],
                "oracle": self.member["oracle"],
                "nodes": len(there),
                "rounds": last[0],
                "metric": "mse" if metrics["accuracy"] is None else "accuracy",
                **metrics,
                "bytes_per_node": float(np.mean([_sent(story) for story in there])),
                "server_bytes": _server_bytes(self.servers),
                "rounds_to_target": rounds_to_target(
                    self.config.evaluate.target,
                    ((done, m["accuracy_all"]) for (done, _), m in self.metrics.items()),
                ),
                **settlement.verdict(
                    [r["choice"] for r in choices],
                    [r["round"] for r in choices],
                    self.names,
                    self.member["heads"],
                    self.member.get("chosen", settlement.HEADS),
                ),
                "models": alive[-1]["count"] if alive else None,
                "chosen": settlement.word(self.member.get("chosen", settlement.HEADS)),
                "restarts": 0,
                "abandoned": [],
                "train_seconds": max((s.end or {}).get("seconds", 0.0) for s in there),
                "parity_reason": self.member["parity_reason"],
                "before_all_reduce": self.metrics[before[-1]] if last[1] == "final" else None,
                "unseen": None,
                "newcomers": {},
                "notes": latest(self._notes(), self.where),
                "everywhere": None,
                "by_tests": None,
                "missing": sorted(self.expected - {story.node for story in there}),
            }
        ]

    def family(self) -> list[Record]:
        """The models of the peer that knew most rounds: all who were there know the same."""
        known = [story.family for story in self.stories]
        return max(known, key=len, default=[])

    def _notes(self) -> list[Record]:
        return [note for server in self.servers for note in server.notes]

    def _last(self) -> When:
        """The last evaluation that all who came to an end have in common, else simply the last."""
        ended = [story for story in self.stories if story.end]
        common = [when for when in self.whens if all(when in story.scores for story in ended)]
        return common[-1] if common else self.whens[-1]

    def _choices(self) -> Iterator[Record]:
        """Everybody's choices, whenever one changed, from when all have chosen."""
        rounds = sorted({record["round"] for story in self.stories for record in story.choices})
        for t in rounds:
            row = [story.chose(t) for story in self.stories]
            if None not in row:
                yield {"kind": "choice", **self.where, "round": t, "choice": row}

    def _picked(self) -> Iterator[Record]:
        """For each round and cluster how many of the picked peers were of the same cluster."""
        known = {story.node: story.member["cluster"] for story in self.stories}
        names = [known.get(node, "") for node in range(max(known, default=-1) + 1)]
        for t in sorted({t for story in self.stories for t in story.picks}):
            there = [story for story in self.stories if t in story.picks]
            picks = [story.picks[t] for story in there]
            rows = _padded([record["peers"] for record in picks], len(names))
            left = [record["competitive"] for record in picks]
            open_ = None if None in left else np.array(left, np.int64)
            where, ids = {**self.where, "round": t}, [story.node for story in there]
            yield from pick_records(where, ids, rows, open_, names)

    def _evaluation(self, when: When) -> list[Record]:
        """The records of one evaluation, of those who were there."""
        there = [story for story in self.stories if when in story.scores]
        scores = [story.scores[when] for story in there]
        names = [story.member["cluster"] for story in there]
        loss = np.array([_number(score["loss"]) for score in scores])
        confusion = _confusion(scores)
        comparable = self.member["parity_reason"] is None
        metrics = evaluate(confusion, loss, names, self.config.evaluate.alpha, comparable)
        self.metrics[when] = metrics
        accuracy = np.full(len(there), np.nan) if confusion is None else per_node(confusion)
        sent = np.array([score["bytes"] for score in scores])
        where = {**self.where, "round": when[0], "phase": when[1]}
        made = records(where, metrics, names, accuracy, loss, sent)
        ids = [story.node for story in there]
        return [r if r["kind"] != "node" else {**r, "node": ids[r["node"]]} for r in made]


def _padded(rows: Sequence[Sequence[int]], nodes: int) -> NDArray[np.int64]:
    """Lists of ids as one table; -1 fills up, and stands for peers of whom nothing is known."""
    table = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = [peer if peer < nodes else -1 for peer in row]
    return table


def _confusion(scores: Sequence[Record]) -> NDArray[np.int64] | None:
    if any(score["confusion"] is None for score in scores):
        return None
    return np.array([score["confusion"] for score in scores], np.int64)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _sent(story: Story) -> int:
    """What a node had sent in the end, or after the last round of which it told."""
    if story.end and story.end["finished"]:  # with what it answered to those who were slower
        return int(story.end["bytes"])
    rounds = [when for when in story.scores if when[1] == "round"]
    return int(story.scores[max(rounds)]["bytes"]) if rounds else 0


def _server_bytes(servers: Sequence[Story]) -> float | None:
    ends = [float(story.end["bytes"]) for story in servers if story.end]
    return ends[0] if ends else None


def write_summary(
    folder: Path, config: Config, stories: Sequence[Story], expected: Iterable[int] = ()
) -> Record:
    """Write records and summary of a run folder that should hold these peers; returns the summary.

    The summary names those who are missing at the end.
    """
    made = Collection(config, stories, expected) if stories else None
    lines = [json.dumps(r, allow_nan=False) for r in made.records()] if made else []
    if made and (family := made.family()):
        write_family(folder, family)
    write_atomically(folder / "records.jsonl", "".join(f"{line}\n" for line in lines).encode())
    results = made.results() if made else []
    (sizes,) = config.data.scenarios().values()
    counts = {table.name: size for table, size in zip(config.data.clusters, sizes, strict=True)}
    summary = {
        "name": config.experiment.name,
        "results": results,
        "aggregate": aggregate(results),
        "order": [config.label(table) for table in config.algorithm],
        "clusters": sorted(counts, key=lambda name: -counts[name]),
    }
    data = json.dumps(summary, indent=1, allow_nan=False).encode()
    write_atomically(folder / "summary.json", data)
    return summary
