"""Averages in which models count unequally: by their samples, or by their age."""

from __future__ import annotations

from torch import Tensor

from coterie.core import Inbox


def shares(own: Tensor, inbox: Inbox, name: str) -> Tensor:
    """The weight [E] of every heard row where rows count as much as their `name` [S, 1] says.

    `own` [m, 1] is what the block's own rows count; `mix` leaves them the rest.
    """
    total = own + inbox.sum(name)  # [m, 1]
    heard = inbox[name][inbox.sender]  # [E, 1]
    return (heard / total[inbox.receiver].clamp(min=1e-30))[:, 0]
