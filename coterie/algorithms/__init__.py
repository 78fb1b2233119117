"""One paper, one file."""

from coterie.algorithms.dpsgd import DPSGD
from coterie.algorithms.epidemic import EpidemicLearning
from coterie.algorithms.facade import Facade
from coterie.algorithms.fedavg import FedAvg
from coterie.algorithms.fedopt import FedOpt
from coterie.algorithms.fedprox import FedProx
from coterie.algorithms.fedrep import FedRep
from coterie.algorithms.fedsgd import FedSGD
from coterie.algorithms.hypcluster import HypCluster
from coterie.algorithms.ifca import IFCA
from coterie.algorithms.local import Local
from coterie.algorithms.scaffold import Scaffold

__all__ = [
    "DPSGD",
    "IFCA",
    "EpidemicLearning",
    "Facade",
    "FedAvg",
    "FedOpt",
    "FedProx",
    "FedRep",
    "FedSGD",
    "HypCluster",
    "Local",
    "Scaffold",
]
