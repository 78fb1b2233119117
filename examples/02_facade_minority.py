"""Who pays for averaging? The minority's accuracy under Epidemic Learning and under FACADE."""

import os
import tempfile
from pathlib import Path

import coterie

ROUNDS = int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "80"))

config = coterie.Config(
    experiment={"name": "minority", "seeds": [1, 2], "rounds": ROUNDS},
    data={
        "clusters": [
            {"name": "upright", "nodes": 12},
            {"name": "turned", "nodes": 4, "shifts": [{"name": "rotation", "degrees": 180}]},
        ]
    },
    model={"name": "mlp", "hidden": [32]},
    train={"steps": 5, "lr": 0.1},
    algorithm=[
        {"name": "epidemic", "degree": 4},
        {"name": "facade", "degree": 4, "heads": 2, "warmup": min(5, ROUNDS - 1)},
    ],
)
summary = coterie.run(config, Path(tempfile.mkdtemp()) / "run")

print("accuracy of  majority  minority")
for label in summary["order"]:
    for mean in summary["aggregate"][label].values():
        majority, minority = (mean[f"accuracy:{name}"]["mean"] for name in summary["clusters"])
        print(f"{label:<12} {majority:7.1f}% {minority:8.1f}%")
