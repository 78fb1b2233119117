"""Models by name: a dataclass of options whose `build` makes a module that names its head."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from coterie.core.registry import Registry
from coterie.core.samples import Pool


@dataclass(frozen=True)
class Shape:
    """What a model has to fit: one sample's shape and the number of outputs."""

    sample: tuple[int, ...]  # (channels, height, width), or (features,)
    outputs: int  # classes, or values for a regression


class Model(abc.ABC):
    """Options of a model."""

    algorithm: ClassVar[str] = ""  # the one that makes use of all parts of it; empty: any does

    @property
    def weighs_losses(self) -> bool:
        """Whether a part learns at a rate of its own, by the weight of its loss."""
        return False

    @abc.abstractmethod
    def build(self, shape: Shape) -> nn.Module:
        """A freshly initialised module; its `head` attribute names the layers of its head."""

    def problem(self, pool: Pool) -> str:
        """Why samples cannot be given to it, though their shape fits; empty: they can."""
        return ""


models: Registry[Model] = Registry("model")


def named_head(module: nn.Module, *names: str) -> nn.Module:
    """The module, with its head declared."""
    module.head = names  # type: ignore[assignment]
    return module
