"""What a device has counted while nobody waited for it."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core.asking import check_faults, faults
from coterie.core.edges import EdgeTable
from coterie.core.messages import Fetch


class Tally:
    """Bytes of the Fetches of a whole population, and whether one of them was wrong."""

    def __init__(self, nodes: int, device: torch.device) -> None:
        self.sent = torch.zeros(nodes, dtype=torch.int64, device=device)
        self.worst = torch.full((2,), -1, device=device)  # see `faults`

    def add(self, message: Fetch, edges: EdgeTable, question: int, answer: int) -> None:
        """Count the bytes of a question at who asks, and those of an answer at who is asked."""
        again = torch.zeros_like(edges.filled)
        again[:, 1:] = edges.heard[:, 1:] == edges.heard[:, :-1]  # one who is asked twice
        once = edges.filled & ~again
        self.sent += question * once.sum(1)
        self.sent.index_add_(0, edges.heard.flatten(), answer * once.flatten().long())
        wrong = faults(message.of, edges.filled, message.full)
        self.worst = torch.maximum(self.worst, wrong)

    def read(self, n: int) -> Tensor:
        """The bytes that each node sent, on the CPU; ValueError where a Fetch was wrong."""
        found = torch.cat([self.worst, self.sent]).cpu()
        check_faults(found[:2], n)
        return found[2:]
