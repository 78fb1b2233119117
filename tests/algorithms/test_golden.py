"""One tiny run of every registered algorithm, its results compared with committed numbers.

A change of numbers has to be meant: `python tests/algorithms/test_golden.py --write` renews them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

import coterie

GOLDEN = Path(__file__).with_name("golden.json")
KEPT = ("accuracy", "accuracy_all", "fair_accuracy", "equalized_odds", "bytes_per_node", "settled")
OPTIONS = {"warmup": 1, "samples": 20}  # where there is such an option


def results(folder: Path) -> dict[str, dict]:
    """What a tiny run gives, by algorithm."""
    config = coterie.Config.model_validate(
        {
            "experiment": {"rounds": 3, "seeds": [1]},
            "data": {
                "clusters": [
                    {"name": "upright", "nodes": 4},
                    {"name": "turned", "nodes": 2, "shifts": ["rotation"]},
                ]
            },
            "model": {"name": "mlp", "hidden": [12]},
            "train": {"steps": 8, "lr": 0.2, "precision": "float64"},
            "algorithm": [table(name) for name in sorted(coterie.algorithms.entries)],
            "runtime": {"models": False},
        }
    )
    summary = coterie.run(config, folder, device="cpu")
    return {r["label"]: {key: r[key] for key in KEPT} for r in summary["results"]}


def table(name: str) -> dict:
    known = {option.name for option in coterie.algorithms[name].options()}
    return {"name": name} | {key: value for key, value in OPTIONS.items() if key in known}


@pytest.fixture(scope="module")
def got(tmp_path_factory):
    with pytest.warns(UserWarning, match="fedcg is made for"):  # here all have one small model
        return results(tmp_path_factory.mktemp("golden") / "run")


@pytest.mark.parametrize("name", sorted(coterie.algorithms.entries))
def test_a_tiny_run_gives_the_committed_numbers(name, got):
    expected = json.loads(GOLDEN.read_text())
    assert name in expected, "no golden numbers yet: see the top of this file"
    accuracy = expected[name].pop("accuracy")
    assert got[name]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    for key, value in expected[name].items():
        assert got[name][key] == pytest.approx(value, abs=1e-6), key


def test_no_golden_numbers_are_left_of_an_algorithm_that_is_gone():
    assert set(json.loads(GOLDEN.read_text())) == set(coterie.algorithms.entries)


if __name__ == "__main__" and "--write" in sys.argv:
    with tempfile.TemporaryDirectory() as scratch:
        GOLDEN.write_text(json.dumps(results(Path(scratch) / "run"), indent=1) + "\n")
