"""Epidemic Learning on handwritten digits, from Python: 16 nodes, two of them upside down."""

import os

import coterie

config = coterie.Config(
    experiment={
        "name": "epidemic",
        "seeds": [1],
        "rounds": int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "60")),
    },
    model={"name": "mlp", "hidden": [32]},
    train={"steps": 5, "lr": 0.1},
    algorithm=[coterie.EpidemicLearning(degree=4)],
)
summary = coterie.run(config)  # in runs/epidemic, or runs/epidemic-2 where that exists

for result in summary["results"]:
    for cluster, accuracy in result["accuracy"].items():
        print(f"{cluster:<10} {accuracy:5.1f} %")
    print(f"each node sent {result['bytes_per_node'] / 1e6:.1f} MB")
