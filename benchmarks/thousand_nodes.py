"""Do 1,000 nodes fit on a small machine? EL with a logistic model on digits, 10 rounds.

    python benchmarks/thousand_nodes.py [--nodes 1000]

Prints seconds and the peak memory of the process, and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

import coterie
from coterie import config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    table = {
        "experiment": {"name": "thousand", "seeds": [1], "rounds": 10},
        "data": {
            "source": "digits",
            "holdout": 0.0,
            "clusters": [
                {"name": "majority", "nodes": nodes - nodes // 8},
                {
                    "name": "minority",
                    "nodes": nodes // 8,
                    "shifts": [{"name": "rotation", "degrees": 180}],
                },
            ],
        },
        "model": {"name": "logistic"},
        "train": {"steps": 10, "batch": 8},
        "algorithm": [{"name": "epidemic"}],
        "runtime": {"models": False},
    }
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        coterie.run(config.parse(table), Path(folder) / "run", device="cpu")
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{nodes} nodes, 10 rounds: {seconds:.1f} s, peak memory {peak:.2f} GiB")
    machine = f"{os.cpu_count()} CPU cores"
    print(
        json.dumps(
            {
                "benchmark": "thousand_nodes",
                "machine": machine,
                "nodes": nodes,
                "seconds": seconds,
                "gib": peak,
            }
        )
    )


if __name__ == "__main__":
    main()
