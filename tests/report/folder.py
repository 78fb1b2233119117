"""A small made-up run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from coterie.report.summarize import aggregate

LABELS = {"facade": "facade", "epidemic": "epidemic"}


@dataclass(frozen=True)
class Made:
    """What to make up."""

    name: str = "digits"
    labels: Mapping[str, str] = field(default_factory=lambda: dict(LABELS))  # and algorithms
    oracles: Sequence[str] = ()
    scenarios: Sequence[tuple[int, ...]] = ((14, 2),)
    clusters: Sequence[str] = ("majority", "minority")
    seeds: Sequence[int] = (1, 2, 3)
    rounds: int = 20
    every: int = 2
    metric: str = "accuracy"
    unseen: bool = False  # some nodes did not train


def write_run(folder: Path, made: Made) -> Path:
    """Write the four files of a run folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    results = list(_results(made))
    summary = {
        "name": made.name,
        "results": results,
        "aggregate": aggregate(results),
        "order": list(made.labels),
        "clusters": list(made.clusters),
    }
    lines = "".join(json.dumps(record) + "\n" for record in _records(made))
    (folder / "config.toml").write_text(f'[experiment]\nname = "{made.name}"\n')
    (folder / "environment.json").write_text(json.dumps({"python": "3.12", "device": "cpu"}))
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "records.jsonl").write_text(lines)
    return folder


def value(made: Made, label: str, cluster: int, seed: int, t: int) -> float:
    """A made-up accuracy or error that learns with rounds; facade serves all clusters."""
    index = list(made.labels).index(label)
    loss = cluster * (2 + 9 * index) + 3 * (seed % 3) + index
    reached = (98 - loss) * (1 - math.exp(-6 * t / made.rounds))
    return reached if made.metric == "accuracy" else 1.2 - reached / 100


def _pair(made: Made, values: Sequence[float], pair: tuple[int, int]) -> dict[str, Any]:
    apart = abs(values[pair[0]] - values[pair[1]])
    return {
        "clusters": [made.clusters[c] for c in pair],
        "demographic_parity": apart / 1000,
        "equalized_odds": apart / 100,
        "equalized_odds_tpr": apart / 110,
    }


def story(seed: int) -> str:
    """When a made-up seed settled, or why it did not."""
    return "settled since round 6" if seed != 3 else "never settled: they share head 0"


def _worlds(made: Made) -> Iterator[tuple[str, tuple[int, ...], int]]:
    for sizes in made.scenarios:
        for seed in made.seeds:
            yield ":".join(map(str, sizes)), sizes, seed


def _measures(made: Made, label: str, seed: int, t: int, sizes: Sequence[int]) -> dict[str, Any]:
    values = [value(made, label, c, seed, t) for c in range(len(sizes))]
    everyone = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
    if made.metric == "mse":
        return {"values": values, "accuracy": None, "loss": everyone}
    gap = max(values) - min(values)
    return {
        "values": values,
        "accuracy": everyone,
        "loss": 2 - everyone / 50,
        "worst_node": min(values) - 1,
        "worst_tenth": min(values) - 0.5,
        "accuracy_variance": gap**2,
        "jain_index": 1 - gap / 1000,
        "demographic_parity": gap / 1000,
        "equalized_odds": gap / 100,
        "equalized_odds_tpr": gap / 110,
        "worst_cluster": made.clusters[values.index(min(values))],
        "worst_cluster_accuracy": min(values),
        "gap": gap,
        "demographic_parity_worst": gap / 900,
        "equalized_odds_worst": gap / 90,
        "pairs": [_pair(made, values, pair) for pair in combinations(range(len(values)), 2)],
        "fair_accuracy": 2 / 3 * sum(values) / len(values) + (100 - gap) / 3,
    }


def _results(made: Made) -> Iterator[dict[str, Any]]:
    for scenario, sizes, seed in _worlds(made):
        for label, algorithm in made.labels.items():
            found = _measures(made, label, seed, made.rounds, sizes)
            by_cluster = dict(zip(made.clusters, found.pop("values"), strict=True))
            everyone, loss = found.pop("accuracy"), found.pop("loss")
            accuracy = made.metric == "accuracy"
            heads = algorithm == "facade"
            yield {
                "label": label,
                "scenario": scenario,
                "seed": seed,
                "algorithm": algorithm,
                "oracle": label in made.oracles,
                "nodes": sum(sizes),
                "rounds": made.rounds,
                "metric": made.metric,
                "accuracy": by_cluster if accuracy else None,
                "mse": None if accuracy else by_cluster,
                "accuracy_all": everyone,
                "mse_all": None if accuracy else loss,
                **found,
                "bytes_per_node": 1_440_000 * made.rounds,
                "settled": seed != 3 if heads else None,
                "first_settled_round": 6 if heads and seed != 3 else None,
                "adjusted_rand_index": (1.0 if seed != 3 else 0.4) if heads else None,
                "settlement": story(seed) if heads else None,
                "train_seconds": 4.2 + seed / 10,
                "parity_reason": None,
                "before_all_reduce": {"accuracy_all": everyone and everyone - 1},
                "unseen": {"accuracy_all": everyone, "worst_tenth": 40} if made.unseen else None,
            }


def _records(made: Made) -> Iterator[dict[str, Any]]:
    for scenario, sizes, seed in _worlds(made):
        who = [made.clusters[c] for c, size in enumerate(sizes) for _ in range(size)]
        yield {"kind": "population", "scenario": scenario, "seed": seed, "clusters": who}
        for label, algorithm in made.labels.items():
            world = {"label": label, "scenario": scenario, "seed": seed}
            for t in [*range(0, made.rounds + 1, made.every), made.rounds]:
                yield from _evaluation(made, world, sizes, t)
            if algorithm == "facade":
                yield from _choices(world, sizes)


def _evaluation(
    made: Made, world: dict[str, Any], sizes: Sequence[int], t: int
) -> Iterator[dict[str, Any]]:
    found = _measures(made, world["label"], world["seed"], t, sizes)
    values = found.pop("values")
    at = {**world, "round": t, "phase": "round", "bytes": 1_440_000 * t}
    yield {"kind": "overall", **at, **found}
    for cluster, size, reached in zip(made.clusters, sizes, values, strict=True):
        measured = {"accuracy": reached if found["accuracy"] is not None else None, "loss": reached}
        yield {"kind": "cluster", **at, "cluster": cluster, "nodes": size, **measured}
    yield {"kind": "node", **at, "node": 0, "cluster": made.clusters[0], "loss": 1.0}


def _choices(world: dict[str, Any], sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    true = [c for c, size in enumerate(sizes) for _ in range(size)]
    mixed = [(node + world["seed"]) % len(sizes) for node in range(sum(sizes))]
    for t in range(7):
        settled = world["seed"] != 3
        row = [
            good if settled and node % 6 < t else other
            for node, (good, other) in enumerate(zip(true, mixed, strict=True))
        ]
        yield {"kind": "choice", **world, "round": t, "choice": row}
