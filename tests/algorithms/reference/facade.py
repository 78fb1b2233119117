"""FACADE (thesis, 2024), Algorithm 1 with its warm-up; an empty core makes it IDCA.

`loss(node, params, t, stream)` is the loss on the node's samples of that stream, `words(node, t)`
one random word in range(2**32) a head: among equal losses the head of the lowest word wins.
"""

from __future__ import annotations

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


def run(box: Facade, cores, heads, rounds):
    """Cores [i], heads [i][j] and choices [i] after all rounds."""
    cores, heads = list(cores), [list(mine) for mine in heads]
    n = len(cores)
    choice = [0] * n
    for t in range(rounds):
        for i in range(n):
            choice[i] = choose(box, cores[i], heads[i], i, t)  # line 3
            whole = box.train(i, torch.cat([cores[i], heads[i][choice[i]]]), t)  # line 4
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


def choose(box: Facade, core, heads, i, t):
    """The head with the lowest loss estimate; while exploring any head."""
    words = box.words(i, t)
    if box.warmup <= t < box.warmup + box.explore:
        return words[0] * box.k // 2**32
    losses = [
        box.loss(
            i, torch.cat([core, heads[j]]), t, "heads" if box.scoring == "same" else f"head {j}"
        )
        for j in range(box.k)
    ]
    return lowest(losses, words)


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
