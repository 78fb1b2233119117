"""DAC (Listo Zec et al., 2022) as its authors run it, all nodes at once instead of one by one.

`loss(i, params, t)` is the loss of any model on node i's train samples, `clocks(i, t)` a standard
exponential number for every peer: peer j with probability p_j arrives after clocks[j] / p_j.
Where `replayed(i)` is given, node i uses these same uniform numbers in every round, as the FACADE
thesis's code does by seeding its generator anew, and NumPy draws with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.algorithms.reference.random_peers import weighted_mean


@dataclass
class DAC:
    """The hyper-parameters, and what a node can do."""

    degree: int
    tau: float
    train: Callable
    loss: Callable
    clocks: Callable
    size: Callable
    growing: bool = True
    two_hop: bool = True
    train_last: bool = True
    replayed: Callable | None = None


def run(box: DAC, params, rounds):
    """Models, scores [i][j] and the sets of asked peers after all rounds."""
    params = list(params)
    n = len(params)
    scores = [[0.0] * n for _ in range(n)]  # similarity_scores, 0 = unknown
    asked = [set() for _ in range(n)]  # n_sampled > 0
    probabilities = [[0.0 if j == i else 1 / (n - 1) for j in range(n)] for i in range(n)]
    if box.train_last:
        params = [box.train(i, params[i], 0, "train before") for i in range(n)]
    for t in range(rounds):
        if not box.train_last:
            params = [box.train(i, params[i], t, "train") for i in range(n)]
        before, mixed = [list(mine) for mine in scores], []
        for i in range(n):
            sampled = sample(box, probabilities[i], box.clocks(i, t), i)
            for k in sampled:
                scores[i][k] = 1 / box.loss(i, params[k], t)
                asked[i].add(k)
            if box.two_hop:
                propagate(i, sampled, scores, before, asked[i])
            tau = 2 * box.tau / (1 + math.exp(-0.2 * t)) - box.tau + 1 if box.growing else box.tau
            probabilities[i] = softmax(tau, scores[i], i)
            mixed.append(weighted_mean(params, [i, *sampled], box.size))
        if box.train_last:
            mixed = [box.train(i, mixed[i], t, "train") for i in range(n)]
        params = mixed
    return params, scores, asked


def sample(box, probabilities, clocks, i):
    """Peers without replacement by their probabilities: the first whose clocks ring."""
    others = [j for j in range(len(probabilities)) if j != i]
    if box.replayed:
        numbers = Told(box.replayed(i))
        return numbers.choice(
            others, box.degree, False, [probabilities[j] for j in others]
        ).tolist()
    return sorted(others, key=lambda j: clocks[j] / probabilities[j])[: box.degree]


class Told(np.random.RandomState):
    """NumPy's generator, with numbers that are given to it."""

    def __new__(cls, numbers):
        return super().__new__(cls)

    def __init__(self, numbers):
        super().__init__()
        self.numbers = list(numbers)

    def rand(self, *size):
        """The next numbers."""
        taken, self.numbers = self.numbers[: size[0]], self.numbers[size[0] :]
        return np.array(taken)


def propagate(i, sampled, scores, before, asked):
    """s_ij <- s_kj of the sampled k most similar to i, for every j it knows and i never asked."""
    for j in range(len(scores)):
        tellers = [k for k in sampled if before[k][j] > 0]
        if j != i and j not in asked and tellers:
            closest = max(tellers, key=lambda k: scores[i][k])
            scores[i][j] = before[closest][j]


def softmax(tau, scores, i):
    """exp(tau s_j) over the sum over all others; the largest is subtracted first."""
    others = [j for j in range(len(scores)) if j != i]
    most = max(scores[j] for j in others)
    powers = {j: math.exp(tau * (scores[j] - most)) for j in others}
    return [powers.get(j, 0.0) / sum(powers.values()) for j in range(len(scores))]
