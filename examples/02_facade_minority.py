"""Who pays for averaging? The minority's accuracy under Epidemic Learning and under FACADE."""

import os

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
        coterie.EpidemicLearning(degree=4),
        coterie.Facade(degree=4, heads=2, warmup=min(5, ROUNDS - 1)),
    ],
)
results = coterie.results(coterie.run(config))  # a pandas frame, one row a seed

columns = ["accuracy:upright", "accuracy:turned", "fair_accuracy"]
print(results.groupby("label")[columns].mean().round(1).to_string())
