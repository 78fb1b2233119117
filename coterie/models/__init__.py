"""Models; each names its head."""

from coterie.models import autoencoder, convolutional, dense, fedcg, leaf, resnet8
from coterie.models.registry import Model, Shape, models, named_head
from coterie.models.user import build_model, check_model, check_samples

__all__ = [
    "Model",
    "Shape",
    "autoencoder",
    "build_model",
    "check_model",
    "check_samples",
    "convolutional",
    "dense",
    "fedcg",
    "leaf",
    "models",
    "named_head",
    "resnet8",
]
