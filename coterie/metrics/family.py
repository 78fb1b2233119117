"""A family of models: who followed which, where it forked and merged, how many were alive.

A model is made of updates of one parent, so parents alone are a tree; learners who followed
different models and then the same one are what is called a merger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Model:
    """A model that somebody published."""

    id: str
    parent: str
    born: int  # after how many rounds
    updates: tuple[int, ...]  # of these nodes
    followers: tuple[int, ...]
    popularity: float

    @classmethod
    def of(cls, record: Any) -> Model:
        """The model of a line of `dag.jsonl`."""
        return cls(
            record["id"],
            record["parent"],
            int(record["born"]),
            tuple(record["updates"]),
            tuple(record["followers"]),
            float(record["popularity"]),
        )


@dataclass(frozen=True)
class Turn:
    """What happened to a family in one round."""

    round: int
    alive: int
    forks: int  # models beyond the first that were made of one parent
    mergers: int  # models beyond the first whose followers now follow one
    extinct: int  # models of the round before that nobody went on with


def extinction(models: Sequence[Model]) -> dict[str, int | None]:
    """The first round after which nothing that descends from a model is alive; None: it lives."""
    last = max((model.born for model in models), default=0)
    until: dict[str, int] = {}
    for model in sorted(models, key=lambda model: -model.born):
        until[model.id] = max(until.get(model.id, 0), model.born)
        until[model.parent] = max(until.get(model.parent, 0), until[model.id])
    return {m.id: None if until[m.id] == last else until[m.id] + 1 for m in models}


def followed(models: Iterable[Model], nodes: int) -> dict[int, dict[int, Model]]:
    """The model that each node followed, by round; of several the most popular one."""
    found: dict[int, dict[int, Model]] = {}
    for model in sorted(models, key=lambda model: (model.born, model.popularity, model.id)):
        here = found.setdefault(model.born, {})
        here.update({node: model for node in model.followers if node < nodes})
    return found


def turns(models: Sequence[Model], nodes: int) -> list[Turn]:
    """What happened, round by round."""
    follows = followed(models, nodes)
    made = []
    for t, here in sorted(follows.items()):
        alive = [model for model in models if model.born == t]
        before = {model.id for model in models if model.born == t - 1}
        children = Counter(model.parent for model in alive if model.parent in before)
        origins = _origins(here, follows.get(t - 1, {}))
        made.append(
            Turn(
                t,
                len(alive),
                sum(many - 1 for many in children.values()),
                sum(max(len(came) - 1, 0) for came in origins.values()),
                len(before - set(children)),
            )
        )
    return made


def _origins(here: Mapping[int, Model], before: Mapping[int, Model]) -> dict[str, set[str]]:
    """For each model the ones that its followers followed in the round before."""
    found: dict[str, set[str]] = {}
    for node, model in here.items():
        came = found.setdefault(model.id, set())
        came |= {before[node].id} if node in before else set()
    return found


def camps(models: Iterable[Model], nodes: int) -> dict[str, int]:
    """A number for the camp of every model: that from which most of its followers come.

    Where several models come from one camp, the one with most of its members goes on with it.
    """
    numbers: dict[str, int] = {}
    fresh = count()
    before: dict[int, int] = {}  # the camp of each node
    for _, here in sorted(followed(models, nodes).items()):
        numbers |= _going_on(here, before)
        for name in sorted({model.id for model in here.values()} - set(numbers)):
            numbers[name] = next(fresh)
        before |= {node: numbers[model.id] for node, model in here.items()}
    return numbers


def _going_on(here: Mapping[int, Model], before: Mapping[int, int]) -> dict[str, int]:
    """The models of a round that go on with a camp, each camp once."""
    size = Counter(model.id for model in here.values())
    came = Counter((here[node].id, before[node]) for node in here if node in before)
    found: dict[str, int] = {}
    for name, camp in sorted(came, key=lambda way: (-came[way], -size[way[0]], way[1], way[0])):
        if name not in found and camp not in found.values():
            found[name] = camp
    return found


def timetable(models: Sequence[Model], nodes: int) -> tuple[NDArray[np.int64], list[int]]:
    """The camp that each node is in [nodes, rounds], -1: none; and the rounds."""
    follows, numbers = followed(models, nodes), camps(models, nodes)
    rounds = sorted(follows)
    table = np.full((nodes, len(rounds)), -1, np.int64)
    for column, t in enumerate(rounds):
        for node, model in follows[t].items():
            table[node, column] = numbers[model.id]
    return table, rounds
