"""The engines under `Nodes.train`, `loss` and `accuracy`."""

from coterie.training.engine import TrainingSettings, make_engine
from coterie.training.objectives import objectives
from coterie.training.optimizers import optimizers

__all__ = ["TrainingSettings", "make_engine", "objectives", "optimizers"]
