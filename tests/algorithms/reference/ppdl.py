"""PPDL (Listo Zec et al.) with the full matrix: a pseudo-reward of every arm for every tried arm.

`uniform(i, t)` is a number in (0, 1) of node i. Arms lie on a line, the untried ones first, then
the others in the order of their first trial; the arm is drawn on which that share of it falls.
Importance weights are the probabilities among the competitive arms (docs/papers/ppdl.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.algorithms.reference.random_peers import weighted_mean


class Bandit:
    """One node's bandit over groups of peers."""

    def __init__(self, peers, sizes):
        self.arms = [set(arm) for size in sizes for arm in itertools.combinations(peers, size)]
        count = len(self.arms)
        self.pulls = [0] * count
        self.rewards = [0.0] * count
        self.sums = np.zeros((count, count))  # [l, j]: pseudo-rewards of l over the pulls of j
        self.losses = [0.0] * count
        self.order = []  # tried arms, by their first trial
        self.competitive = list(range(count))

    def draw(self, share):
        """The next arm and its probability."""
        t, count = sum(self.pulls), len(self.arms)
        significant = [j for j in range(count) if self.pulls[j] > t / count]
        self.competitive = list(range(count))
        if significant:
            means = {j: self.rewards[j] / self.pulls[j] for j in significant}
            best = max(significant, key=lambda j: means[j])
            phi = {j: self.sums[:, j] / self.pulls[j] for j in significant}
            bound = [min(phi[j][arm] for j in significant) for arm in range(count)]
            reach = [arm for arm in range(count) if bound[arm] >= means[best]]
            self.competitive = sorted({*reach, best})
        weights = tsallis(self.losses, 2 / math.sqrt(t + 1))
        line = [arm for arm in range(count) if arm not in self.order] + self.order
        line = [arm for arm in line if arm in self.competitive]
        total = sum(weights[arm] for arm in line)
        for arm in line:
            share -= weights[arm] / total
            if share < 0:
                break
        return arm, weights[arm] / total

    def learn(self, arm, chance, reward, q):
        """A pull of an arm and its reward."""
        for other, members in enumerate(self.arms):
            overlap = len(members & self.arms[arm])
            pseudo = min(reward + q / overlap, 1) if overlap else 1
            self.sums[other, arm] += reward if other == arm else pseudo
        self.pulls[arm] += 1
        self.rewards[arm] += reward
        self.losses[arm] += (1 - reward) / chance
        self.order += [] if arm in self.order else [arm]


def tsallis(losses, rate):
    """4 / (eta (L - x))^2 with the x below all losses at which they add up to 1, by bisection."""
    low = min(losses) - 2 * math.sqrt(len(losses)) / rate
    high = min(losses) - 2 / rate
    for _ in range(200):
        x = (low + high) / 2
        total = sum(4 / (rate * (loss - x)) ** 2 for loss in losses)
        low, high = (low, x) if total > 1 else (x, high)
    return [4 / (rate * (loss - x)) ** 2 for loss in losses]


@dataclass
class PPDL:
    """The hyper-parameters, and what a node can do."""

    sizes: list[int]
    q: Callable  # of the round
    train: Callable
    accuracy: Callable  # on the validation samples
    loss: Callable
    uniform: Callable
    size: Callable


def run(box: PPDL, params, rounds):
    """Last models, best models and bandits after all rounds."""
    n = len(params)
    bandits = [Bandit([j for j in range(n) if j != i], box.sizes) for i in range(n)]
    params = [box.train(i, params[i], 0, "train before") for i in range(n)]
    best = list(params)
    lowest = [box.loss(i, params[i]) for i in range(n)]
    for t in range(rounds):
        drawn = [bandits[i].draw(box.uniform(i, t)) for i in range(n)]
        mixed = [
            weighted_mean(params, [i, *sorted(bandits[i].arms[drawn[i][0]])], box.size)
            for i in range(n)
        ]
        for i in range(n):
            bandits[i].learn(*drawn[i], box.accuracy(i, mixed[i]), box.q(t))
        params = [box.train(i, mixed[i], t, "train") for i in range(n)]
        for i in range(n):
            if (loss := box.loss(i, params[i])) < lowest[i]:
                best[i], lowest[i] = params[i], loss
    return params, best, bandits
