"""Whom nodes picked: the field `picked` of a state, which the measuring side sets against clusters.

Ids of the peers with whom a node averaged last, [m, k]; -1: nobody.
"""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core import Inbox, Nodes


def nobody(nodes: Nodes, width: int) -> Tensor:
    """Before the first round: -1 everywhere, [m, width]."""
    return torch.full((len(nodes), width), -1, device=nodes.device)


def heard_by(inbox: Inbox, like: Tensor, keep: Tensor | None = None) -> Tensor:
    """The peers that each row heard, or whom to `keep` [m, D] of them; as wide as `like` [m, k]."""
    peers = inbox.table(inbox.source, otherwise=-1)  # [m, D]
    peers = peers if keep is None else torch.where(keep, peers, -1)
    return torch.nn.functional.pad(peers, (0, like.shape[1] - peers.shape[1]), value=-1)
