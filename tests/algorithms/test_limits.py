"""No frame of a registered algorithm comes near what its run lets in."""

from __future__ import annotations

import torch

from coterie.core import Federated
from coterie.core.federated import server_of
from coterie.links.memory import MemoryLink
from coterie.links.wire import decode
from coterie.runtimes.lockstep import FrameExchange
from coterie.runtimes.simulate import simulation_of
from coterie.runtimes.weight import MARGIN, held_by
from tests.algorithms.test_parity import every_algorithm, tiny, whole
from tests.algorithms.world import N

ROUNDS = 2


@every_algorithm
def test_frames_are_far_below_what_the_limits_let_in(name, monkeypatch):
    sizes, nodes, send = [], whole(name), MemoryLink.send

    def weighed(link, to, data):
        sizes.append(sum(row.nbytes for row in decode(data).rows.values()))
        send(link, to, data)

    monkeypatch.setattr(MemoryLink, "send", weighed)
    blocks = [nodes[row] for row in torch.arange(N).split(1)]
    simulation = simulation_of(tiny(name), blocks, FrameExchange(N))
    simulation.start()
    for t in range(ROUNDS):
        simulation.round(t)
    simulation.finish(ROUNDS)
    held = [held_by(tiny(name), blocks[0])]
    if isinstance(tiny(name), Federated):
        held.append(held_by(tiny(name), server_of(nodes)))
    assert max(sizes, default=0) <= min(held) * MARGIN / 4
