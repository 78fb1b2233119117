"""Which tracker a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.config import Config

if TYPE_CHECKING:
    from coterie.tracking.mlflow_store import Tracker


def tracker_of(config: Config) -> Tracker | None:
    """The tracker, reached and ready; None where none is asked for."""
    if not config.tracking.mlflow:
        return None
    from coterie.tracking.mlflow_store import Tracker

    return Tracker(config.tracking.mlflow, config.tracking.experiment or config.experiment.name)
