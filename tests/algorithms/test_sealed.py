"""Algorithms whose rounds need only sums give the same run when these are sealed."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import DPSGD, PPDL, EpidemicLearning, FedAvg
from coterie.errors import InputError
from coterie.links.loopback import Hub
from coterie.runtimes.lockstep import DirectExchange, FrameExchange
from coterie.runtimes.packing import pack
from coterie.runtimes.peer import Peer
from coterie.runtimes.plan import Plan
from tests.algorithms.world import N, make_nodes
from tests.world import simulate

NODES = make_nodes((1,))
PAIRS = [
    (EpidemicLearning(3, all_reduce=True), EpidemicLearning(3, all_reduce=True, sealed=True)),
    (DPSGD("ring"), DPSGD("ring", sealed=True)),
    (DPSGD("star", True), DPSGD("star", True, sealed=True)),
    (FedAvg(), FedAvg(sealed=True)),
    (FedAvg(clients=3), FedAvg(clients=3, sealed=True)),
    (PPDL(), PPDL(sealed=True)),
    (PPDL(2, by_samples=False), PPDL(2, by_samples=False, sealed=True)),
    (PPDL(smallest=2), PPDL(smallest=2, sealed=True)),
]
sealed_ones = pytest.mark.parametrize("algorithm", [sealed for _, sealed in PAIRS], ids=str)


def one_block(algorithm):
    return simulate(algorithm, [NODES], DirectExchange(N))


@pytest.mark.parametrize(("plain", "sealed"), PAIRS, ids=str)
def test_a_sealed_run_is_the_plain_one_within_a_millionth(plain, sealed):
    if plain == DPSGD("star", True):  # a leaf of a star hears its center alone: that stays closed
        with pytest.raises(AssertionError):
            assert_close(one_block(sealed), one_block(plain), rtol=0, atol=1e-6)
    else:
        assert_close(one_block(sealed), one_block(plain), rtol=0, atol=1e-6)


@sealed_ones
def test_blocks_and_frames_do_not_change_a_sealed_run(algorithm):
    expected = one_block(algorithm)
    rows = torch.arange(N)
    for parts in (rows.split(2), rows.split(1)):
        found = simulate(algorithm, [NODES[part] for part in parts], DirectExchange(N))
        assert_close(found, expected, rtol=0, atol=1e-9)
    found = simulate(algorithm, [NODES[part] for part in rows.split(1)], FrameExchange(N))
    assert_close(found, expected, rtol=0, atol=1e-9)


def sent(algorithm, nodes, blocks, exchange):
    simulate(algorithm, [nodes[part] for part in blocks], exchange)
    return [*exchange.sent.tolist(), *exchange.server_sent.tolist()]


@sealed_ones
def test_blocks_frames_and_replicas_do_not_change_the_bytes_of_a_sealed_run(algorithm):
    rows = torch.arange(N)
    expected = sent(algorithm, NODES, [rows], DirectExchange(N))
    assert sent(algorithm, NODES, rows.split(1), DirectExchange(N)) == expected
    assert sent(algorithm, NODES, rows.split(1), FrameExchange(N)) == expected
    both = sent(algorithm, make_nodes((2, 1)), [torch.arange(2 * N)], DirectExchange(N, 2))
    assert [*both[N : 2 * N], both[-1]] == expected  # the second of two replicas


@sealed_ones
def test_a_peer_never_sends_sealed_models_in_the_clear(algorithm):
    plan = Plan(bytes(16), peers=tuple(range(N)), rounds=1)
    with pytest.raises(InputError, match="sealed models never leave in the clear"):
        Peer(algorithm, NODES[torch.tensor([0])], Hub().link(0), plan)


def test_a_sealed_message_of_anybodys_algorithm_is_not_packed():
    alone = NODES[torch.tensor([0])]
    program = EpidemicLearning(2, sealed=True).round(0, EpidemicLearning(2).start(alone), alone)
    with pytest.raises(InputError, match="sealed models never leave in the clear"):
        pack(next(program), alone, bytes(16), (0, 0))


def test_a_sealed_group_has_two_members_at_least():
    with pytest.raises(InputError, match="sealed groups start at 2 peers"):
        PPDL(smallest=1, sealed=True)
