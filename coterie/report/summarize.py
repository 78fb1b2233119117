"""What `summary.json` holds, and the mean and spread over seeds that it ends with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

from pydantic import BaseModel

from coterie.metrics.fairness import DISTANCES, fair_accuracy
from coterie.metrics.statistics import confidence_interval, mean, std

Results = Sequence[Mapping[str, Any]]
ByCluster = dict[str, float | None]

PLAIN = (
    "accuracy_all",
    "mse_all",
    "loss_all",
    "worst_node",
    "best_node",
    "worst_tenth",
    "accuracy_variance",
    "jain_index",
    "consensus_distance",
    "worst_cluster_accuracy",
    "gap",
    *DISTANCES,
    *(f"{distance}_worst" for distance in DISTANCES),
    "fair_accuracy",
    "bytes_per_node",
    "server_bytes",
    "rounds_to_target",
    "settled",
    "first_settled_round",
    "adjusted_rand_index",
    "models",
    "restarts",
    "train_seconds",
)


ELSEWHERE = (  # of newcomers, on the test samples of all nodes, of what tests would pick
    *("unseen", "everywhere", "by_tests"),
)
BY_CLUSTER = ("accuracy", "mse", "unseen_accuracy", *DISTANCES)  # such as `accuracy:minority`
BEYOND = ("accuracy_all", "mse_all", "worst_tenth", "fair_accuracy")  # such as `unseen_mse_all`


def is_key(key: str) -> bool:
    """Whether an aggregate may have this key; clusters are taken on trust."""
    kind, _, cluster = key.partition(":")
    return kind in (BY_CLUSTER if cluster else known_keys())


def known_keys(clusters: Iterable[str] = ()) -> list[str]:
    """The keys that an aggregate may have of these clusters, but for pairs of them and notes."""
    beyond = [f"{place}_{name}" for place, name in product(ELSEWHERE, BEYOND)]
    kinds = ("accuracy", "mse", "unseen_accuracy")
    own = [f"{kind}:{name}" for name in clusters for kind in kinds]
    return [*PLAIN, *beyond, "cluster_mean", "fair_accuracy_of_means", *own]


class Pair(BaseModel):
    """How alike two clusters are treated; 0: alike."""

    clusters: tuple[str, str]
    demographic_parity: float | None = None
    equalized_odds: float | None = None
    equalized_odds_tpr: float | None = None


class Metrics(BaseModel):
    """What one evaluation of one population measured."""

    accuracy: ByCluster | None = None
    mse: ByCluster | None = None
    accuracy_all: float | None = None
    mse_all: float | None = None
    loss_all: float | None = None
    worst_node: float | None = None
    best_node: float | None = None
    worst_cluster: str | None = None
    worst_cluster_accuracy: float | None = None
    gap: float | None = None
    worst_tenth: float | None = None
    accuracy_variance: float | None = None
    jain_index: float | None = None
    consensus_distance: float | None = None  # of the nodes' models from their mean; no server
    demographic_parity: float | None = None
    equalized_odds: float | None = None
    equalized_odds_tpr: float | None = None
    demographic_parity_worst: float | None = None
    equalized_odds_worst: float | None = None
    equalized_odds_tpr_worst: float | None = None
    pairs: list[Pair] | None = None
    fair_accuracy: float | None = None
    diverged: int = 0  # nodes whose model was tested and has a loss that is no number


class Abandoned(BaseModel):
    """A start that was given up because it had not settled after a round."""

    seed: int
    round: int
    why: str
    bytes_per_node: float | None = None


class Result(Metrics):
    """One algorithm on one scenario with one seed."""

    label: str
    scenario: str
    seed: int
    algorithm: str
    oracle: bool = False
    nodes: int
    rounds: int
    metric: Literal["accuracy", "mse"]
    bytes_per_node: float | None = None
    server_bytes: float | None = None
    rounds_to_target: float | None = None  # null: never, or none was set
    settled: bool | None = None
    first_settled_round: int | None = None
    adjusted_rand_index: float | None = None
    settlement: str | None = None  # when it settled, or why it did not
    chosen: str = "head"  # what nodes choose, where they do
    models: int | None = None  # alive in the end, where there is a family of them
    restarts: int = 0
    abandoned: list[Abandoned] = []
    train_seconds: float | None = None
    parity_reason: str | None = None
    before_all_reduce: Metrics | None = None
    unseen: Metrics | None = None
    newcomers: dict[str, int] = {}  # how many nodes of each cluster did not train
    notes: dict[str, float | None] = {}  # of the server, after the last round
    everywhere: Metrics | None = None
    by_tests: Metrics | None = None
    missing: list[int] = []  # peers that were not there at the end, or not collected


class Summary(BaseModel):
    """The results of a run, the labels in order and the clusters, largest first."""

    name: str
    results: list[Result]
    order: list[str] = []
    clusters: list[str] = []


def aggregate(results: Results) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Label -> scenario -> key -> mean, std (ddof 0) and ci95 over seeds.

    Clusters have keys such as `accuracy:majority`, and where there are more than two, their pairs
    keys such as `equalized_odds:A|B`. The mean of `settled` is the share of seeds that settled
    without starting again. `cluster_mean` is the accuracy in which all clusters count alike, while
    `accuracy_all` counts nodes. `fair_accuracy_of_means` is the thesis's reading: of the seed-
    averaged ones. What nodes got that did not train has keys such as `unseen_accuracy_all`, what
    all models do on the test samples of all nodes such as `everywhere_accuracy_all`, what heads or
    models do that tests picked such as `by_tests_accuracy_all`, and what a server noted of its last
    round such as `note:entropy`.
    """
    table: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for (label, scenario), group in grouped(results).items():
        table.setdefault(label, {})[scenario] = _spreads(group)
    return table


def newcomers(results: Results) -> str:
    """Which nodes of each scenario did not train; empty: all did."""
    counts = {r["scenario"]: r["newcomers"] for r in results if r.get("newcomers")}
    told = [
        f"{', '.join(f'{count} of {name}' for name, count in found.items())} ({scenario})"
        for scenario, found in counts.items()
    ]
    if not told:
        return ""
    return (
        f"Unseen: {'; '.join(told)}. Where that is another mix than that of the nodes that train, "
        "compare cluster by cluster."
    )


def diverged(results: Results) -> str:
    """Which seeds ended with models whose loss is no number, on how many nodes; empty: none."""
    lost: dict[str, list[str]] = {}
    for result in results:
        if count := result.get("diverged"):
            where, nodes = f"{result['label']} ({result['scenario']})", result["nodes"]
            some = "" if count == nodes else f" ({count} of {nodes} nodes)"
            lost.setdefault(where, []).append(f"{result['seed']}{some}")
    if not lost:
        return ""
    told = "; ".join(f"{where}: seed {', '.join(seeds)}" for where, seeds in lost.items())
    return f"Diverged, so that accuracy and fairness mean nothing: {told}. Lower the learning rate."


def grouped(results: Results) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The results of all seeds of each (label, scenario), in order of appearance."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["label"], result["scenario"]), []).append(result)
    return groups


def spread(values: Iterable[float | None]) -> dict[str, Any]:
    """Mean, std and 95% confidence interval; null where there are too few values."""
    there = list(values)
    interval = confidence_interval(there)
    return {"mean": mean(there), "std": std(there), "ci95": list(interval) if interval else None}


def settled_at_once(result: Mapping[str, Any]) -> bool | None:
    """Whether a run settled without starting again; None where nothing settles."""
    settled: bool | None = result.get("settled")
    return settled if settled is None else settled and not result.get("restarts")


def cluster_names(results: Results) -> list[str]:
    """The clusters that the results name, in order of appearance."""
    names = [name for r in results for field in ("accuracy", "mse") for name in r.get(field) or {}]
    return list(dict.fromkeys(names))


def cluster_pairs(results: Results) -> list[tuple[str, str]]:
    """The pairs of clusters that were compared, where there are several."""
    pairs = [(p["clusters"][0], p["clusters"][1]) for r in results for p in r.get("pairs") or []]
    found = list(dict.fromkeys(pairs))
    return found if len(found) > 1 else []


def pair_key(distance: str, pair: tuple[str, str]) -> str:
    """The key of a pair's distance in an aggregate."""
    return f"{distance}:{pair[0]}|{pair[1]}"


def _of_pair(result: Mapping[str, Any], pair: tuple[str, str], distance: str) -> float | None:
    for entry in result.get("pairs") or []:
        if tuple(entry["clusters"]) == pair:
            value: float | None = entry[distance]
            return value
    return None


def _spreads(group: Results) -> dict[str, dict[str, Any]]:
    keys = {key: spread(r.get(key) for r in group) for key in PLAIN}
    for field in ("accuracy", "mse"):
        for name in cluster_names([{field: r.get(field)} for r in group]):
            keys[f"{field}:{name}"] = spread((r.get(field) or {}).get(name) for r in group)
    for pair in cluster_pairs(group):
        for distance in DISTANCES:
            keys[pair_key(distance, pair)] = spread(_of_pair(r, pair, distance) for r in group)
    for place, key in product(ELSEWHERE, BEYOND):
        keys[f"{place}_{key}"] = spread((r.get(place) or {}).get(key) for r in group)
    newcomers = [(r.get("unseen") or {}).get("accuracy") or {} for r in group]
    for name in dict.fromkeys(name for found in newcomers for name in found):
        keys[f"unseen_accuracy:{name}"] = spread(found.get(name) for found in newcomers)
    for name in dict.fromkeys(name for r in group for name in r.get("notes") or {}):
        keys[f"note:{name}"] = spread((r.get("notes") or {}).get(name) for r in group)
    keys["settled"] = spread(settled_at_once(r) for r in group)
    keys["cluster_mean"] = spread(_cluster_mean(r) for r in group)
    keys["fair_accuracy_of_means"] = _fair_accuracy_of_means(keys)
    return keys


def _cluster_mean(result: Mapping[str, Any]) -> float | None:
    """The mean accuracy over clusters, whatever their sizes."""
    return mean(list((result.get("accuracy") or {}).values()))


def _fair_accuracy_of_means(keys: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    means = [value["mean"] for key, value in keys.items() if key.startswith("accuracy:")]
    known = [value for value in means if value is not None]
    return {"mean": fair_accuracy(known) if known else None, "std": None, "ci95": None}
