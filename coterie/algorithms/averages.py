"""Averages in which models count unequally, and what comes first: training or averaging."""

from __future__ import annotations

from torch import Tensor

from coterie.core import Inbox, Nodes, mix


def shares(own: Tensor, inbox: Inbox, name: str) -> Tensor:
    """The weight [m, D] of every heard row where rows count as much as their `name` [S, 1] says.

    `own` [m, 1] is what the block's own rows count; `mix` leaves them the rest.
    """
    total = own + inbox.sum(name)  # [m, 1]
    return inbox.table(name)[:, :, 0] / total.clamp(min=1e-30)


def offer(params: Tensor, nodes: Nodes, by_samples: bool) -> dict[str, Tensor]:
    """Models and, where they count by it, how many samples each was trained on."""
    return {"params": params} | ({"samples": _sizes(params, nodes)} if by_samples else {})


def average(params: Tensor, inbox: Inbox, nodes: Nodes, by_samples: bool) -> Tensor:
    """Own models averaged with those of an `offer`, by their samples or all alike."""
    weight = shares(_sizes(params, nodes), inbox, "samples") if by_samples else None
    return mix(params, inbox, "params", weight=weight)


def _sizes(params: Tensor, nodes: Nodes) -> Tensor:
    return nodes.samples[:, None].to(params.dtype)  # [m, 1]


def train_before(params: Tensor, t: int, nodes: Nodes, train_last: bool) -> Tensor:
    """What goes into the exchange of round t: where rounds end with training, the last one's work.

    Before the very first exchange everybody trains in any case.
    """
    if train_last and t:
        return params
    return nodes.train(params, t, "train before" if train_last else "train")
