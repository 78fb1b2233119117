"""Which model a node would deploy: its last one, or its best so far by validation loss."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core import Nodes
from coterie.errors import InputError


def none_yet(params: Tensor, nodes: Nodes, keep: bool) -> tuple[Tensor, Tensor]:
    """The best models before the first round, and their losses [m]: none has been measured."""
    if keep:
        need_validation(nodes, "keep_best")
    loss = torch.full((len(nodes),), torch.inf, dtype=torch.float64, device=nodes.device)
    return params if keep else params[:, :0], loss


def need_validation(nodes: Nodes, who: str) -> None:
    """InputError where nobody in a block has validation samples."""
    if len(nodes) and not int(nodes.valid_data.owned.sum()):
        raise InputError(f"{who} needs validation samples, and there are none; raise data.holdout")


def better(best: Tensor, loss: Tensor, params: Tensor, nodes: Nodes) -> tuple[Tensor, Tensor]:
    """The better of two models of each node by validation loss, and that loss; [m, 0] stays."""
    if not best.shape[1]:
        return best, loss
    found = nodes.validate(params).loss.double().nan_to_num(nan=torch.inf)
    wins = (found < loss) | loss.isinf()  # without validation samples the last one counts
    return torch.where(wins[:, None], params, best), torch.where(wins, found, loss)


def deployed(params: Tensor, best: Tensor) -> Tensor:
    """The models that nodes would deploy, [m, P]: the best ones where they are kept."""
    return best if best.shape[1] else params
