"""One paper, one file."""

from coterie.algorithms.dac import DAC
from coterie.algorithms.deprl import DePRL
from coterie.algorithms.dispfl import DisPFL
from coterie.algorithms.dpsgd import DPSGD
from coterie.algorithms.epidemic import EpidemicLearning
from coterie.algorithms.facade import Facade
from coterie.algorithms.fedavg import FedAvg
from coterie.algorithms.fedavg_p2p import FedAvgP2P
from coterie.algorithms.fedcg import FedCG
from coterie.algorithms.fedopt import FedOpt
from coterie.algorithms.fedprox import FedProx
from coterie.algorithms.fedrep import FedRep
from coterie.algorithms.fedsgd import FedSGD
from coterie.algorithms.gossip import Gossip
from coterie.algorithms.hypcluster import HypCluster
from coterie.algorithms.ifca import IFCA
from coterie.algorithms.local import Local
from coterie.algorithms.mcfl import MCFL
from coterie.algorithms.oracle import Oracle
from coterie.algorithms.pens import PENS
from coterie.algorithms.ppdl import PPDL
from coterie.algorithms.random_peers import RandomPeers
from coterie.algorithms.scaffold import Scaffold

__all__ = [
    "DAC",
    "DPSGD",
    "IFCA",
    "MCFL",
    "PENS",
    "PPDL",
    "DePRL",
    "DisPFL",
    "EpidemicLearning",
    "Facade",
    "FedAvg",
    "FedAvgP2P",
    "FedCG",
    "FedOpt",
    "FedProx",
    "FedRep",
    "FedSGD",
    "Gossip",
    "HypCluster",
    "Local",
    "Oracle",
    "RandomPeers",
    "Scaffold",
]
