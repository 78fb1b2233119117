"""Use a personal model: put its file into the module and predict. Peers write the same files."""

import json
import os

import torch
from safetensors import safe_open

import coterie
from coterie.data import load
from coterie.models import Shape, build_model

rounds = int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "60"))
config = coterie.Config(
    experiment={"name": "predict", "seeds": [1], "rounds": rounds},
    data={"source": "digits", "clusters": [{"name": "all", "nodes": 4}]},
    model={"name": "small-cnn"},
    algorithm=[coterie.EpidemicLearning(degree=2)],
)
coterie.run(config, "runs/predict")


def personal(path, module):
    """The module with the values of a file, and mean and deviation of the images it knows."""
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        module.load_state_dict({name: file.get_tensor(name) for name in names}, strict=False)
        inputs = json.loads(file.metadata()["inputs"])
        return module.eval(), inputs["mean"], inputs["std"]


empty = build_model(config.model.spec, Shape(sample=(1, 8, 8), outputs=10))()
model, mean, std = personal("runs/predict/models/epidemic/4/seed-1/node-0.safetensors", empty)

test = load("digits").test
images = (torch.from_numpy(test.inputs).float() / 255 - mean[0]) / std[0]
with torch.no_grad():
    classes = model(images).argmax(dim=1)
print("first ten:", classes[:10].tolist(), "of", test.targets[:10].tolist())
print(f"right: {(classes == torch.from_numpy(test.targets)).float().mean():.1%}")
