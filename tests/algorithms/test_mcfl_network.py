"""A learner that publishes what does not verify is ignored, with a line in the log."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest
import torch

from coterie.algorithms import MCFL
from coterie.links.loopback import Hub
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Plan
from tests.algorithms.world import N, make_nodes

LONG = 120.0  # seconds; no wait is ever that long unless something is broken
LIAR = 2


class Liar(MCFL):
    """Plays honestly and tells others something else, from round 1 on."""

    def round(self, t, state, nodes):
        program = MCFL.round(self, t, state, nodes)
        message = next(program)
        while True:
            inbox = (
                yield message if t == 0 else dataclasses.replace(message, rows=lie(message.rows))
            )
            try:
                message = program.send(inbox)
            except StopIteration as stop:
                return stop.value


def false_id(rows):
    return rows | {"child": rows["child"] + 1} if "child" in rows else rows


def other_bytes(rows):
    return rows | {"content": rows["content"] + 1} if "content" in rows else rows


def missing_updates(rows):
    return rows | {"merged": torch.ones_like(rows["merged"])} if "merged" in rows else rows


def impossible_samples(rows):
    return rows | {"samples": -rows["samples"]} if "samples" in rows else rows


lie = false_id


async def play():
    hub, plan = Hub(), Plan(bytes(16), tuple(range(N)), 3, deadline=LONG, patience=LONG)
    peers = [
        Peer(
            (Liar if peer == LIAR else MCFL)(tolerance=0.0, most=1),
            make_nodes()[torch.tensor([peer])],
            hub.link(peer),
            plan,
        )
        for peer in range(N)
    ]
    async with asyncio.timeout(2 * LONG):
        return await asyncio.gather(*(peer.run() for peer in peers))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (false_id, "published a false id"),
        (other_bytes, "merged other bytes than came here"),
        (missing_updates, "chose updates that do not exist"),
        (impossible_samples, "claims an impossible number of samples"),
    ],
)
def test_what_does_not_verify_is_ignored_with_a_log_line_and_the_round_goes_on(
    told, why, monkeypatch, caplog
):
    monkeypatch.setitem(globals(), "lie", told)
    caplog.set_level(logging.WARNING, "coterie.peer")
    done = asyncio.run(play())
    assert all(outcome.finished and outcome.rounds == 3 for outcome in done)
    assert f"node {LIAR} {why}" in caplog.text
    honest = [outcome.state for peer, outcome in enumerate(done) if peer != LIAR]
    assert not any(state.followers[0, :, LIAR].any() for state in honest)
    assert all(torch.equal(state.ids, honest[0].ids) for state in honest)
