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
    """The peers that each row heard, or of those whom to `keep` [E]; as wide as `like` [m, k]."""
    receiver = inbox.receiver
    place = torch.arange(len(receiver), device=receiver.device)
    place = place - torch.searchsorted(receiver, receiver)  # edges of one row stand together
    peers = inbox.source[inbox.sender]
    peers = peers if keep is None else torch.where(keep, peers, -1)
    return torch.full_like(like, -1).index_put((receiver, place), peers.to(like.dtype))
