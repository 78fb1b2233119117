"""Personalized models among many data owners that fall into unknown clusters."""

from coterie.algorithms import DPSGD, EpidemicLearning, Facade, Local
from coterie.config import Config
from coterie.core import (
    Algorithm,
    Fetch,
    Inbox,
    Listen,
    Nodes,
    Send,
    State,
    algorithms,
    mix,
    regular,
)
from coterie.errors import InputError
from coterie.run import run

__version__ = "0.1.0"

__all__ = [
    "DPSGD",
    "Algorithm",
    "Config",
    "EpidemicLearning",
    "Facade",
    "Fetch",
    "Inbox",
    "InputError",
    "Listen",
    "Local",
    "Nodes",
    "Send",
    "State",
    "algorithms",
    "mix",
    "regular",
    "run",
]
