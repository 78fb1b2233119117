"""FACADE (thesis, 2024), Algorithm 1 with its warm-up; an empty core makes it IDCA.

`loss(node, params, t, stream)` is the loss on the node's samples of that stream, `words(node, t)`
one random word in range(2**32) a head: among equal losses the head of the lowest word wins.
`dice(node, t)` are two words: whether a node explores, and which head it then takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Facade:
    """The hyper-parameters, and what a node can do."""

    k: int
    warmup: int
    train: Callable
    loss: Callable
    edges: Callable
    words: Callable
    scoring: str = "same"
    explore: int = 0
    fading: bool = False
    leak: float = 0.0
    dice: Callable | None = None


def run(box: Facade, cores, heads, rounds):
    """Cores [i], heads [i][j] and choices [i] after all rounds."""
    cores, heads = list(cores), [list(mine) for mine in heads]
    n = len(cores)
    choice = [0] * n
    for t in range(rounds):
        for i in range(n):
            losses = score(box, cores[i], heads[i], i, t)
            choice[i] = choose(box, losses, i, t)  # line 3
            start = leaked(box, heads[i], choice[i], losses, t)
            whole = box.train(i, torch.cat([cores[i], start]), t)  # line 4
            cores[i], heads[i][choice[i]] = whole[: len(cores[i])], whole[len(cores[i]) :]
        sent = [(cores[i], heads[i][choice[i]], choice[i]) for i in range(n)]  # lines 5-7
        for i in range(n):
            received = [sent[j] for j, target in box.edges(t) if target == i]
            if t < box.warmup:
                own = sent[i][1]
                heads[i] = [mean([own] + [head for _, head, _ in received])] * box.k
            else:
                heads[i] = average_heads(box.k, heads[i], received)  # lines 9-11
            cores[i] = mean([cores[i]] + [core for core, _, _ in received])  # line 8
    return cores, heads, choice


def score(box: Facade, core, heads, i, t):
    """The loss estimate of every head."""
    streams = ["heads" if box.scoring == "same" else f"head {j}" for j in range(box.k)]
    return [box.loss(i, torch.cat([core, heads[j]]), t, streams[j]) for j in range(box.k)]


def choose(box: Facade, losses, i, t):
    """The head with the lowest loss estimate; while exploring any head."""
    since = t - box.warmup
    if box.explore and since >= 0:
        chance = math.exp(-3 * since / box.explore) if box.fading else int(since < box.explore)
        whether, which = box.dice(i, t)
        if (whether + 0.5) / 2**32 < chance:
            return which * box.k // 2**32
    return lowest(losses, box.words(i, t))


def leaked(box: Facade, heads, j, losses, t):
    """Model leaking: w head_j + (1 - w) / (k - 1) * sum of the others, w = max softmax(-a L)."""
    if not box.leak or box.k == 1 or t < box.warmup:
        return heads[j]
    powers = [math.exp(-box.leak * loss) for loss in losses]
    w = max(powers) / sum(powers)
    others = sum(heads[other] for other in range(box.k) if other != j)
    return w * heads[j] + (1 - w) / (box.k - 1) * others


def lowest(losses, words):
    """The place of the lowest loss; ties by the lowest word."""
    tied = [j for j, value in enumerate(losses) if value == min(losses)]
    return min(tied, key=lambda j: words[j])


def mean(vectors):
    """The plain mean."""
    return sum(vectors) / len(vectors)


def average_heads(k, own, received):
    """head_j <- (own head_j + heard heads of index j) / (C_j + 1)."""
    return [mean([own[j]] + [head for _, head, index in received if index == j]) for j in range(k)]


def all_reduce(k, cores, heads, best):
    """After the last round: cores are averaged over all nodes, heads by index; best[i] is sent."""
    n = len(cores)
    sent = [(cores[i], heads[i][best[i]], best[i]) for i in range(n)]
    others = [[sent[j] for j in range(n) if j != i] for i in range(n)]
    new_cores = [mean([cores[i]] + [core for core, _, _ in others[i]]) for i in range(n)]
    return new_cores, [average_heads(k, heads[i], others[i]) for i in range(n)]
