"""Personalized models among many data owners that fall into unknown clusters."""

import importlib
import sys
import types
import typing

if typing.TYPE_CHECKING:
    from coterie.algorithms import (
        DAC,
        DPSGD,
        IFCA,
        PENS,
        PPDL,
        DePRL,
        DisPFL,
        EpidemicLearning,
        Facade,
        FedAvg,
        FedOpt,
        FedProx,
        FedRep,
        FedSGD,
        Gossip,
        HypCluster,
        Local,
        Oracle,
        RandomPeers,
        Scaffold,
    )
    from coterie.config import Config
    from coterie.core import (
        Algorithm,
        Cohort,
        Federated,
        Fetch,
        Inbox,
        Listen,
        Nodes,
        Send,
        State,
        algorithms,
        mean,
        mix,
        regular,
    )
    from coterie.errors import InputError
    from coterie.frames import results
    from coterie.run import run

__version__ = "0.1.0"

__all__ = [
    "DAC",
    "DPSGD",
    "IFCA",
    "PENS",
    "PPDL",
    "Algorithm",
    "Cohort",
    "Config",
    "DePRL",
    "DisPFL",
    "EpidemicLearning",
    "Facade",
    "FedAvg",
    "FedOpt",
    "FedProx",
    "FedRep",
    "FedSGD",
    "Federated",
    "Fetch",
    "Gossip",
    "HypCluster",
    "Inbox",
    "InputError",
    "Listen",
    "Local",
    "Nodes",
    "Oracle",
    "RandomPeers",
    "Scaffold",
    "Send",
    "State",
    "algorithms",
    "mean",
    "mix",
    "regular",
    "results",
    "run",
]

_HOMES = {  # the module of each public name, imported when the name is first used
    **dict.fromkeys(["DAC", "DPSGD", "DePRL", "DisPFL", "EpidemicLearning"], "coterie.algorithms"),
    **dict.fromkeys(["Facade", "FedAvg", "FedOpt", "FedProx", "FedRep"], "coterie.algorithms"),
    **dict.fromkeys(["FedSGD", "Gossip", "HypCluster", "IFCA", "Local"], "coterie.algorithms"),
    **dict.fromkeys(["Oracle", "PENS", "PPDL", "RandomPeers", "Scaffold"], "coterie.algorithms"),
    **dict.fromkeys(["Algorithm", "Cohort", "Federated", "Fetch", "Inbox"], "coterie.core"),
    **dict.fromkeys(["Listen", "Nodes", "Send", "State", "mean"], "coterie.core"),
    **dict.fromkeys(["mix", "regular"], "coterie.core"),
    "algorithms": "coterie.algorithms.local",  # where all of them are registered
    "Config": "coterie.config",
    "InputError": "coterie.errors",
    "results": "coterie.frames",
    "run": "coterie.run",
}


class _Package(types.ModuleType):
    """A package in which `run` and `algorithms` are what they are above, never the submodules."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, types.ModuleType)):
            types.ModuleType.__setattr__(self, name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
