"""One paper, one file."""

from coterie.algorithms.dac import DAC
from coterie.algorithms.deprl import DePRL
from coterie.algorithms.dpsgd import DPSGD
from coterie.algorithms.epidemic import EpidemicLearning
from coterie.algorithms.facade import Facade
from coterie.algorithms.fedavg import FedAvg
from coterie.algorithms.gossip import Gossip
from coterie.algorithms.local import Local
from coterie.algorithms.oracle import Oracle
from coterie.algorithms.random_peers import RandomPeers

__all__ = [
    "DAC",
    "DPSGD",
    "DePRL",
    "EpidemicLearning",
    "Facade",
    "FedAvg",
    "Gossip",
    "Local",
    "Oracle",
    "RandomPeers",
]
