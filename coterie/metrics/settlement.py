"""Settlement: did the heads that nodes chose sort them into their clusters?

A choice row holds the head chosen by each node (-1: it has not chosen yet), a cluster row its true
cluster. Nothing is settled before everybody has chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Judge = Callable[[ArrayLike, ArrayLike], bool]
HEADS = "head", "heads"  # what nodes choose, one and several
WHOLE = "model", "models"  # whole ones
MODELS = "the model of node", "the models of nodes"  # named by the first of those who follow it
KEYS = ("settled", "first_settled_round", "adjusted_rand_index", "settlement")  # of a result


def matrix(
    choice_row: ArrayLike, cluster: ArrayLike, heads: int | None = None
) -> NDArray[np.int64]:
    """How many nodes of each cluster (row, in sorted order) chose each head (column)."""
    choice = np.asarray(choice_row, np.int64)
    names, row = np.unique(np.asarray(cluster), return_inverse=True)
    columns = max(int(choice.max(initial=-1)) + 1, heads or 0)
    chose = choice >= 0
    counts = np.bincount((row * columns + choice)[chose], minlength=len(names) * columns)
    return counts.reshape(len(names), columns)


def settled(choice_row: ArrayLike, cluster: ArrayLike) -> bool:
    """Each cluster's nodes chose one head, and distinct clusters distinct heads."""
    chosen = matrix(choice_row, cluster) > 0
    return bool((chosen.sum(axis=1) == 1).all()) and unshared(choice_row, cluster)


def unshared(choice_row: ArrayLike, cluster: ArrayLike) -> bool:
    """No head was chosen in two clusters: what to ask when there are more heads than clusters."""
    if np.min(np.asarray(choice_row, np.int64), initial=0) < 0:
        return False
    chosen = matrix(choice_row, cluster) > 0
    return bool((chosen.sum(axis=0) <= 1).all())


def can_settle(heads: int, cluster: ArrayLike) -> bool:
    """Whether there is anything to sort: several clusters, and more to choose from than one."""
    return heads != 1 and len(np.unique(np.asarray(cluster))) > 1


def judge_of(heads: int, cluster: ArrayLike) -> Judge:
    """What settled means for so many heads: with heads to spare a cluster may use several."""
    return unshared if heads > len(np.unique(np.asarray(cluster))) else settled


def first_settled_round(
    choices: ArrayLike, cluster: ArrayLike, judge: Judge = settled
) -> int | None:
    """The first row of `[rounds, nodes]` from which it stays settled to the end, if any."""
    rows = np.asarray(choices, np.int64)
    good = np.array([judge(row, cluster) for row in rows], dtype=bool)
    if not good.size or not good[-1]:
        return None
    bad = np.flatnonzero(~good)
    return int(bad[-1]) + 1 if bad.size else 0


def verdict(
    choices: Sequence[Sequence[int]],
    rounds: Sequence[int],
    cluster: Sequence[str],
    heads: int,
    name: tuple[str, str] = HEADS,
) -> dict[str, Any]:
    """Whether and when rows of choices settled, and how well the last matches the clusters.

    `rounds` are those of the rows; no rows: the algorithm does not choose. All is None where there
    is nothing to sort. `name` is what nodes choose is called.
    """
    if not len(choices) or not can_settle(heads, cluster):
        return dict.fromkeys(KEYS)
    judge = judge_of(heads, cluster)
    first = first_settled_round(choices, cluster, judge)
    found = (
        judge(choices[-1], cluster),
        None if first is None else rounds[first],
        adjusted_rand_index(choices[-1], cluster),
        story(rounds, choices, cluster, judge, name),
    )
    return dict(zip(KEYS, found, strict=True))


def word(name: Sequence[str]) -> str:
    """What a figure calls one of what nodes choose."""
    return HEADS[0] if tuple(name) == HEADS else WHOLE[0]


def adjusted_rand_index(choice_row: ArrayLike, cluster: ArrayLike) -> float:
    """How alike the heads and the clusters sort the nodes: 1 is the same, about 0 is chance."""
    heads = np.unique(np.asarray(choice_row, np.int64), return_inverse=True)[1]
    counts = matrix(heads, cluster).astype(np.float64)  # [clusters, heads]
    both, either = (counts**2).sum(), counts.sum() ** 2
    by_cluster, by_head = (counts.sum(1) ** 2).sum(), (counts.sum(0) ** 2).sum()
    together = both - counts.sum()  # ordered pairs of nodes that both put together, and so on
    split, joined = by_cluster - both, by_head - both
    apart = either - both - split - joined
    if split == joined == 0:
        return 1.0
    chance = (together + split) * (split + apart) + (together + joined) * (joined + apart)
    return float(2 * (together * apart - split * joined) / chance)


def problems(
    choice_row: ArrayLike,
    cluster: ArrayLike,
    judge: Judge = settled,
    name: tuple[str, str] = HEADS,
) -> str:
    """Why these choices are not settled, in plain words; empty where they are."""
    if judge(choice_row, cluster):
        return ""
    names = [str(who) for who in np.unique(np.asarray(cluster))]
    counts = matrix(choice_row, cluster)
    waiting = int((np.asarray(choice_row, np.int64) < 0).sum())
    told = [f"{counted(waiting, 'node')} {_have(waiting)} not chosen yet"] if waiting else []
    for head, column in enumerate(counts.T):
        owners = [who for who, nodes in zip(names, column, strict=True) if nodes]
        if len(owners) > 1:
            told.append(f"{_list(owners)} share {name[0]} {head}")
    if judge is not unshared:
        told += [_split(who, row, name[1]) for who, row in zip(names, counts, strict=True)]
    return "; ".join(part for part in told if part)


def story(
    rounds: Sequence[int],
    choices: ArrayLike,
    cluster: ArrayLike,
    judge: Judge = settled,
    name: tuple[str, str] = HEADS,
) -> str:
    """When choices `[len(rounds), nodes]` settled or were lost and, at the end, why they are not.

    `rounds` are those after which a row of choices held, until the next.
    """
    rows = np.asarray(choices, np.int64)
    good = [False, *(judge(row, cluster) for row in rows)]
    turns = [n for n in range(len(rows)) if good[n] != good[n + 1]]  # found, lost, found, ...
    found, lost = [rounds[n] for n in turns[::2]], [rounds[n] for n in turns[1::2]]
    if good[-1]:
        again = f", after it was lost {counted(len(lost), 'time')}" if lost else ""
        return f"settled since round {found[-1]}{again}"
    why = problems(rows[-1], cluster, judge, name) if len(rows) else "nobody chose"
    if not found:
        return f"never settled: {why}"
    before = f" (and {counted(len(lost) - 1, 'time')} before)" if len(lost) > 1 else ""
    return f"settled at round {found[-1]}, lost at round {lost[-1]}{before}: {why}"


def _split(name: str, row: NDArray[np.int64], several: str) -> str:
    """That a cluster's nodes chose several heads, where they did."""
    heads = [f"{head} ({counted(int(nodes), 'node')})" for head, nodes in enumerate(row) if nodes]
    return f"{name} is split between {several} {_list(heads)}" if len(heads) > 1 else ""


def _list(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, noun: str) -> str:
    """A number and what it counts: 1 node, 2 nodes."""
    return f"{number} {noun}{'s' * (number != 1)}"


def _have(number: int) -> str:
    return "has" if number == 1 else "have"
