"""What algorithms with several server models share: clients choose, the server averages each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core import Inbox, Nodes, pick_lowest
from coterie.errors import InputError

SPARE = 16  # heads or models that also fewer nodes, or a lone one, may have


@dataclass(frozen=True)
class Choice:
    """The model that a client chose when it last took part; not needed, but recorded."""

    choice: Tensor  # [m]; -1: it has not chosen yet


@dataclass(frozen=True)
class Chosen:
    """What nodes hold once the server has delivered its models."""

    models: Tensor  # [m, k, P]


def check_count(name: str, count: int, nodes: Nodes) -> None:
    """Refuse more heads or models than nodes that could choose them; a few are always fine."""
    most = max(nodes.n, SPARE)
    if count > most:
        raise InputError(
            f"{name}: {nodes.n} nodes cannot use {count} of them; use 1 to {most}, best the "
            "number of clusters you expect"
        )


def losses(
    models: Tensor, nodes: Nodes, t: int, samples: int | None = None, shared: int = 0
) -> Tensor:
    """The loss of each of a node's models [m, k, P] on the same of its train samples: [m, k].

    The first `shared` columns are equal in all models of a node.
    """
    return nodes.head_losses(models[:, 0, :shared], models[..., shared:], t, "models", samples)


def choose(
    models: Tensor, nodes: Nodes, t: int, samples: int | None = None, shared: int = 0
) -> Tensor:
    """The model with the lowest loss on the node's train data, ties at random: [m]."""
    words = nodes.draw("model ties", t, models.shape[1])
    return pick_lowest(losses(models, nodes, t, samples, shared), words)


def take(models: Tensor, choice: Tensor) -> Tensor:
    """The chosen model of each node: [m, k, P], [m] -> [m, P]."""
    return models[torch.arange(len(models), device=models.device), choice]


def average_each(models: Tensor, inbox: Inbox) -> Tensor:
    """Each server model after the mean update of the clients that chose it: [replicas, k, P].

    Updates come multiplied by their `weight`. A model that nobody chose stays as it is.
    """
    sent = inbox["choice"][inbox.sender]  # [E]
    moved = [_moved(models[:, j], inbox, sent == j) for j in range(models.shape[1])]
    return torch.stack(moved, dim=1)


def _moved(model: Tensor, inbox: Inbox, keep: Tensor) -> Tensor:
    chosen = keep.to(model.dtype)
    total = inbox.sum("weight", chosen)
    return model + inbox.sum("update", chosen) / torch.where(total > 0, total, 1)[:, None]


def shares(inbox: Inbox, k: int) -> Tensor:
    """The share of the clients heard that chose each model: [replicas, k]."""
    sent = inbox["choice"][inbox.sender]
    count = torch.stack([inbox.count(sent == j) for j in range(k)], dim=1)
    return count / count.sum(1, keepdim=True).clamp(min=1)
