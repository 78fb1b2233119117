"""How the models of a part do: on their own nodes' test samples, on everybody's, with newcomers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.algorithm import Algorithm
from coterie.core.engine import Scores
from coterie.core.federated import Federated
from coterie.core.judging import Judge, consensus_distance
from coterie.metrics.accuracy import per_node
from coterie.metrics.evaluation import evaluate, plain
from coterie.runtimes.simulate import Simulated

if TYPE_CHECKING:
    from coterie.part import Part

Names = Sequence[Sequence[str]]  # per replica, the true cluster of every node


@dataclass(frozen=True)
class Tested:
    """The tests of one replica."""

    metrics: dict[str, Any]
    clusters: list[str]  # of its nodes
    losses: NDArray[np.float64]  # [n]
    accuracies: NDArray[np.float64]  # [n] NaN where there are no classes


class Examiner:
    """Tests the models of a part, as they are at the moment."""

    def __init__(self, part: Part, simulation: Simulated, alpha: float) -> None:
        self.part = part
        self.simulation = simulation
        self.alpha = alpha  # of fair accuracy

    def own(self) -> list[Tested]:
        """Every node's personal model on its own test samples."""
        scores, apart = self._scores(Judge(self.part.nodes.population.engine))
        found = self._tested(scores, self.part.clusters, self.part.nodes.n)
        for one, distance in zip(found, apart, strict=True):
            one.metrics["consensus_distance"] = plain(distance)
        return found

    def _scores(self, judge: Judge) -> tuple[list[Scores], list[float | None]]:
        """The tests of all personal models and, without a server, how far these are apart."""
        scores, models = [], []
        for nodes, rows in self.simulation.personal():
            scores.append(nodes.test(rows, judge))
            models += [] if isinstance(self.part.algorithm, Federated) else [rows]
        if not models:
            return scores, [None] * len(self.part.replicas)
        whole = models[0] if len(models) == 1 else torch.cat(models)
        return scores, [*consensus_distance(whole, self.part.nodes.n)]

    def newcomers(self) -> list[Tested]:
        """The models that newcomers would get; none where there are no newcomers, or no models."""
        newcomers = self.part.newcomers
        if newcomers is None:
            return []
        scores, judge = [], Judge(newcomers.population.engine)
        for nodes, models in self.simulation.adopted(self.part.nodes, newcomers):
            if models is None:
                return []
            scores.append(nodes.test(models, judge))
        return self._tested(scores, self.part.newcomer_clusters, newcomers.n)

    def everywhere(self) -> list[Tested]:
        """Every node's model on what all nodes are tested on: what it knows beyond its own."""
        nodes = self.part.nodes
        common = nodes.test_data.together(nodes.replica, len(self.part.replicas))
        judge = Judge(nodes.population.engine)
        scores = [
            judge.test(models, common.take(some.replica.to(nodes.device), some.replica))
            for some, models in self.simulation.personal()
        ]
        return self._tested(scores, self.part.clusters, nodes.n)

    def by_tests(self) -> list[Tested]:
        """The head or model of each node that tests best on its own test samples; none to pick."""
        if type(self.part.algorithm).head_losses is Algorithm.head_losses:
            return []
        judge = Judge(self.part.nodes.population.engine)
        picked = self.simulation.personal(by_tests=True)
        scores = [nodes.test(models, judge) for nodes, models in picked]
        return self._tested(scores, self.part.clusters, self.part.nodes.n)

    def heads(self) -> list[NDArray[np.float64]]:
        """The loss of every head on each node's train samples, by replica; none: no heads."""
        losses = self.simulation.head_losses()
        if losses is None:
            return []
        n, rows = self.part.nodes.n, losses.double().cpu().numpy()
        return [rows[first : first + n] for first in range(0, len(rows), n)]

    def _tested(self, scores: list[Scores], clusters: Names, n: int) -> list[Tested]:
        parts = enumerate(_by_replica(scores, n))
        return [self._one(r, list(clusters[r]), loss, counts) for r, (loss, counts) in parts]

    def _one(
        self,
        replica: int,
        names: list[str],
        losses: NDArray[np.float64],
        confusion: NDArray[np.int64] | None,
    ) -> Tested:
        comparable = self.part.parity_reasons[replica] is None
        metrics = evaluate(confusion, losses, names, self.alpha, comparable)
        accuracies = np.full(len(losses), np.nan) if confusion is None else per_node(confusion)
        return Tested(metrics, names, losses, accuracies)


def _by_replica(
    scores: list[Scores], n: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64] | None]]:
    """Losses and confusions of each replica's n nodes."""
    losses = torch.cat([s.loss for s in scores]).double().cpu().numpy().reshape(-1, n)
    matrices = [s.confusion for s in scores if s.confusion is not None]
    counts = torch.cat(matrices).cpu().numpy() if matrices else None
    for number, loss in enumerate(losses):
        yield loss, None if counts is None else counts[number * n : (number + 1) * n]
