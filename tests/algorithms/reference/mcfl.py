"""MultiConfederated Learning: Algorithms 1 and 2 learner by learner, models in a dict."""

import hashlib
import math
import statistics
from dataclasses import dataclass

import torch

ROOT = bytes(32)


@dataclass(frozen=True)
class Model:
    weights: torch.Tensor
    popularity: float


def run(box, initial, rounds):
    """The models alive after the last round, by name, and which one each learner follows."""
    alive, follows = {}, []
    for t in range(rounds):
        trained = {}  # (learner, parent) -> weights
        best = []
        for i in range(box.n):
            picked = select(box, i, alive)
            best.append(picked[0])
            for name in picked:
                start = initial[i] if name == ROOT else alive[name].weights
                trained[i, name] = box.train(i, start, t)
        sets = [aggregate(box, i, best[i], trained) for i in range(box.n)]
        follows = [identity(t, best[i], sets[i]) for i in range(box.n)]
        alive = {
            follows[i]: merge(box, best[i], sets[i], trained, alive, follows.count(follows[i]))
            for i in range(box.n)
        }
    return alive, follows


def identity(t, parent, members):
    """The id of a model: parent and updates, each of which is a round, a learner and a parent."""
    names = [
        hashlib.sha256(b"update" + t.to_bytes(8, "big") + j.to_bytes(8, "big") + parent).digest()
        for j in members
    ]
    return hashlib.sha256(b"model" + parent + b"".join(sorted(names))).digest()


def select(box, i, alive):
    """Algorithm 1: the best floor(sqrt(n)) by metric x sqrt(popularity); the root if none lives."""
    if not alive:
        return [ROOT]

    def score(name):
        return box.metric(i, alive[name].weights) * math.sqrt(alive[name].popularity)

    ranked = sorted(sorted(alive), key=score, reverse=True)  # ties by id
    count = max(1, math.isqrt(len(alive)))
    return ranked[: min(count, box.most) if box.most else count]


def aggregate(box, i, parent, trained):
    """Algorithm 2: the learners whose updates of the same parent are near enough, and oneself."""
    mine = trained[i, parent]
    peers = [j for j in range(box.n) if j != i and (j, parent) in trained]
    if parent == ROOT or not peers:
        return [i]
    away = {j: (trained[j, parent] - mine)[box.columns].norm().item() for j in peers}
    length = mine[box.columns].norm().item()
    divergence = {j: distance / length for j, distance in away.items()}
    values = list(divergence.values())
    most = statistics.median(values) + box.tolerance(i) * statistics.pstdev(values)
    near = [j for j in peers if divergence[j] <= most * (1 + 1e-6)]
    return sorted([i, *near])


def merge(box, parent, members, trained, alive, votes):
    """FedAvg of the updates, and how popular the result is."""
    total = sum(box.size(j) for j in members)
    weights = sum(box.size(j) * trained[j, parent] for j in members) / total
    before = alive[parent].popularity if parent in alive else 0
    counts = {"lineage": before + len(members), "size": len(members), "votes": votes}
    return Model(weights, counts[box.popularity])
