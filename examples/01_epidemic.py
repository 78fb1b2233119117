"""Epidemic Learning on handwritten digits, from Python: 16 nodes, two of them upside down."""

import os
import tempfile
from pathlib import Path

import coterie

ROUNDS = int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "60"))

config = coterie.Config(
    experiment={"name": "epidemic", "seeds": [1], "rounds": ROUNDS},
    model={"name": "mlp", "hidden": [32]},
    train={"steps": 5, "lr": 0.1},
    algorithm=[{"name": "epidemic", "degree": 4}],
)
folder = Path(tempfile.mkdtemp()) / "run"
summary = coterie.run(config, folder)

for result in summary["results"]:
    for cluster, accuracy in result["accuracy"].items():
        print(f"{cluster:<10} {accuracy:5.1f} %")
    print(f"each node sent {result['bytes_per_node'] / 1e6:.1f} MB; the run is in {folder}")
