"""Small runs whose results tests look at."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import coterie
from tests.contract.command import tiny

NUMBER = (int, float)
RESULT = {  # key -> type; every entry of `results` has exactly these
    "label": str,
    "scenario": str,
    "seed": int,
    "algorithm": str,
    "oracle": bool,
    "nodes": int,
    "rounds": int,
    "metric": str,
    "accuracy": (dict, type(None)),
    "accuracy_all": (*NUMBER, type(None)),
    "mse": (dict, type(None)),
    "mse_all": (*NUMBER, type(None)),
    "loss_all": (*NUMBER, type(None)),
    "worst_node": NUMBER,
    "best_node": NUMBER,
    "worst_cluster": (str, type(None)),
    "worst_cluster_accuracy": (*NUMBER, type(None)),
    "gap": NUMBER,
    "demographic_parity_worst": (*NUMBER, type(None)),
    "equalized_odds_worst": (*NUMBER, type(None)),
    "equalized_odds_tpr_worst": (*NUMBER, type(None)),
    "pairs": (list, type(None)),
    "worst_tenth": NUMBER,
    "accuracy_variance": NUMBER,
    "jain_index": NUMBER,
    "consensus_distance": NUMBER,
    "demographic_parity": (*NUMBER, type(None)),
    "equalized_odds": (*NUMBER, type(None)),
    "equalized_odds_tpr": (*NUMBER, type(None)),
    "fair_accuracy": (*NUMBER, type(None)),
    "bytes_per_node": NUMBER,
    "server_bytes": (*NUMBER, type(None)),
    "rounds_to_target": (*NUMBER, type(None)),
    "settled": (bool, type(None)),
    "first_settled_round": (int, type(None)),
    "adjusted_rand_index": (*NUMBER, type(None)),
    "settlement": (str, type(None)),
    "models": (int, type(None)),
    "chosen": str,
    "restarts": int,
    "abandoned": list,
    "train_seconds": NUMBER,
    "parity_reason": (str, type(None)),
    "before_all_reduce": (dict, type(None)),
    "unseen": (dict, type(None)),
    "newcomers": dict,
    "notes": dict,
    "everywhere": (dict, type(None)),
    "by_tests": (dict, type(None)),
    "diverged": int,
}


PROMISED = {  # by the design
    *("label", "scenario", "seed", "algorithm", "nodes", "rounds", "metric", "accuracy"),
    *("accuracy_all", "demographic_parity", "equalized_odds", "equalized_odds_tpr"),
    *("fair_accuracy", "bytes_per_node", "settled", "train_seconds"),
}


TABLES = tiny(
    experiment={"name": "two ratios", "seeds": [3, 5, 8], "rounds": 3},
    data__ratios=["4:2", "5:1"],
    algorithm=[
        {"name": "epidemic", "degree": 2},
        {"name": "epidemic", "degree": 4, "label": "denser", "train": {"lr": 0.2}},
        {"name": "facade", "degree": 2, "warmup": 1, "all_reduce": True},
        {"name": "local"},
    ],
)


def carry_out(folder: Path, **tables: object) -> SimpleNamespace:
    """A run: its folder, what it returned and what it wrote."""
    returned = coterie.run(coterie.Config.model_validate(tables), folder, device="cpu")
    written = json.loads((folder / "summary.json").read_text())
    return SimpleNamespace(folder=folder, returned=returned, **written)


def alone(folder: Path, **changes: object) -> dict:
    """The only result of a tiny run."""
    (result,) = carry_out(folder, **tiny(**changes)).results
    return result


def records_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def of(made, label):
    return [result for result in made.results if result["label"] == label]
