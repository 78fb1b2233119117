"""One paper, one file."""

from coterie.algorithms.dpsgd import DPSGD
from coterie.algorithms.epidemic import EpidemicLearning
from coterie.algorithms.facade import Facade
from coterie.algorithms.gossip import Gossip
from coterie.algorithms.local import Local

__all__ = ["DPSGD", "EpidemicLearning", "Facade", "Gossip", "Local"]
