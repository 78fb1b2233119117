"""Algorithms that meet random, similar or known peers, against their papers' boxes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from coterie.algorithms import DAC, Gossip, Oracle, RandomPeers
from coterie.algorithms.dac import estimate, replay, similarity
from coterie.algorithms.gossip import GossipState
from coterie.core import algorithms, uniform
from coterie.errors import InputError
from coterie.run import _check as check
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation
from tests.algorithms.reference import dac, gossip, oracle, random_peers
from tests.algorithms.test_paper import NODES, ROUNDS, edges_of, node, played, same, train
from tests.algorithms.world import N, make_nodes


@pytest.mark.parametrize("variant", ["push", "pull"])
def test_gossip_merges_with_a_random_peer_then_trains(variant):
    algorithm = Gossip(variant)
    expected, ages = gossip.run(NODES.initial_params(), [1] * N, ROUNDS, train, edges_of(algorithm))
    state = played(algorithm)
    same(state.params, expected)
    assert state.age[:, 0].tolist() == ages


@pytest.mark.parametrize("merge", ["age", "equal"])
def test_gossip_counts_models_by_their_age(merge):
    algorithm, ages = Gossip(merge=merge), [1, 5, 2, 9, 1, 3]
    start = GossipState(NODES.initial_params(), torch.tensor(ages).double()[:, None])
    simulation = Simulation(algorithm, [NODES], DirectExchange(N))
    simulation.states = [start]
    for t in range(ROUNDS):
        simulation.round(t)
    expected = gossip.run(
        start.params, ages, ROUNDS, train, edges_of(algorithm), by_age=merge == "age"
    )
    same(simulation.states[0].params, expected[0])
    assert simulation.states[0].age[:, 0].tolist() == expected[1]


def test_gossip_pulls_exactly_one_model_a_node():
    heard = [target for _, target in edges_of(Gossip("pull"))(0)]
    assert sorted(heard) == list(range(N))
    assert_close(torch.tensor(len(edges_of(Gossip("push"))(0))), torch.tensor(N))


def train_in(i, params, t, stream):
    return node(i).train(params[None], t, stream)[0]


def size_if(by_samples):
    return lambda i: NODES.samples[i].item() if by_samples else 1


ORDERS = [(True, True), (False, True), (True, False), (False, False)]


@pytest.mark.parametrize(("by_samples", "train_last"), ORDERS)
def test_random_peers_are_asked_and_averaged(by_samples, train_last):
    algorithm = RandomPeers(2, by_samples, train_last)
    edges = edges_of(algorithm)
    expected = random_peers.run(
        NODES.initial_params(),
        ROUNDS,
        train_in,
        lambda i, t: [j for j, target in edges(t) if target == i],
        size_if(by_samples),
        train_last,
    )
    same(played(algorithm).params, expected)


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize(("by_samples", "train_last"), ORDERS)
def test_the_oracle_asks_peers_of_its_cluster_alone(degree, by_samples, train_last):
    nodes = make_nodes((1,), oracle=True)
    algorithm = Oracle(degree, by_samples, train_last)
    simulation = Simulation(algorithm, [nodes], DirectExchange(N))
    simulation.start()
    for t in range(ROUNDS):
        simulation.round(t)
    expected = oracle.run(
        nodes.initial_params(),
        ROUNDS,
        train_in,
        lambda i, t: node(i).draw("peers", t, N)[0].tolist(),
        nodes.cluster.tolist(),
        degree,
        size_if(by_samples),
        train_last,
    )
    same(simulation.states[0].params, expected)
    assert (simulation.states[0].alike.sum(1) == 2).all()  # two others in each cluster of three


def test_only_an_oracle_is_told_the_clusters():
    assert algorithms["oracle"].oracle
    assert not any(algorithms[name].oracle for name in ("random", "dac", "gossip"))
    simulation = Simulation(Oracle(1), [NODES], DirectExchange(N))
    simulation.start()
    with pytest.raises(PermissionError, match="true clusters are for metrics"):
        simulation.round(0)


DACS = [
    DAC(2),
    DAC(2, tau=5, samples=6),
    DAC(1, two_hop=False),
    DAC(3, growing=False, tau=2),
    DAC(2, by_samples=False, train_last=False),
    DAC(5),
    algorithms.build({"name": "dac-thesis", "degree": 2, "samples": 6}),
]


def clocks(i, t):
    return (-torch.log(uniform(node(i).draw("peers", t, N))))[0].tolist()


def replayed_by(algorithm):
    def replayed(i):
        most = algorithm.degree * (algorithm.degree + 1) // 2
        return uniform(node(i).draw("peers", 0, most))[0].tolist()

    return None if algorithm.redraw else replayed


def box_of(algorithm: DAC) -> dac.DAC:
    samples = algorithm.samples or None
    return dac.DAC(
        degree=algorithm.degree,
        tau=algorithm.tau,
        train=train_in,
        loss=lambda i, params, t: node(i).loss(params[None], t, "scores", samples).item(),
        clocks=clocks,
        size=size_if(algorithm.by_samples),
        growing=algorithm.growing,
        two_hop=algorithm.two_hop,
        train_last=algorithm.train_last,
        replayed=replayed_by(algorithm),
    )


@pytest.mark.parametrize("algorithm", DACS, ids=str)
def test_dac_follows_its_authors(algorithm):
    state = played(algorithm)
    params, scores, asked = dac.run(box_of(algorithm), NODES.initial_params(), ROUNDS)
    same(state.params, params)
    same(state.scores, [torch.tensor(mine, dtype=torch.float64) for mine in scores])
    assert [set(torch.nonzero(row).flatten().tolist()) for row in state.asked] == asked


def test_two_hop_estimates_reach_peers_that_were_never_asked():
    state = played(DAC(1))
    assert ((state.scores > 0) & ~state.asked).any()
    assert not ((state.scores > 0) & ~state.asked)[torch.arange(N), torch.arange(N)].any()
    assert not ((played(DAC(1, two_hop=False)).scores > 0) & ~state.asked).any()


def test_an_estimate_comes_from_the_most_similar_peer_that_knows():
    theirs = torch.tensor([[0.0, 2.0, 5.0], [0.0, 3.0, 0.0], [7.0, 0.0, 0.0]])
    similar, receiver = torch.tensor([1.0, 4.0, 9.0]), torch.tensor([0, 0, 1])
    found = estimate(theirs, similar, receiver, torch.zeros(3, 3))
    assert found.tolist() == [[0, 3, 5], [7, 0, 0], [0, 0, 0]]


def test_the_temperature_grows_as_the_thesis_lists_it():
    grown = [round(DAC().temperature(t), 1) for t in (0, 1, 5, 10, 1000)]
    assert grown == [1.0, 4.0, 14.9, 23.8, 31.0]
    assert DAC(growing=False).temperature(3) == 30.0


@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("spread", [0.1, 3.0, 10.0])
def test_replayed_numbers_give_the_peers_that_numpy_draws(degree, spread):
    random = torch.Generator().manual_seed(5)
    lead = spread * torch.randn(300, 7, dtype=torch.float64, generator=random)
    u = torch.rand(300, degree * (degree + 1) // 2, dtype=torch.float64, generator=random)
    chosen = replay(lead, u, degree).tolist()
    for mine, probabilities, numbers in zip(chosen, torch.softmax(lead, 1), u, strict=True):
        drawn = dac.Told(numbers.tolist()).choice(7, degree, False, probabilities.numpy())
        assert mine == drawn.tolist()


def test_a_replayed_draw_moves_with_the_scores_and_in_the_end_keeps_the_known():
    frozen, scores = DAC(2, redraw=False), torch.zeros(N, N, dtype=torch.float64)
    scores[:, :2] = torch.tensor([9.0, 8.0])
    early, late = frozen.choose(0, 0 * scores, NODES), frozen.choose(500, scores, NODES)
    assert early[2:].tolist() != late[2:].tolist() == [[0, 1]] * (N - 2)


def test_peers_are_drawn_without_replacement_by_their_probabilities():
    scores = torch.tensor([0.0, 1.0, 0.5, 2.0, 0.0, 1.5]).double().expand(N, N)
    algorithm, draws = DAC(2, tau=1, growing=False), 4000
    first = torch.zeros(N)
    pairs = 0
    for t in range(draws):
        chosen = algorithm.choose(t, scores, NODES)[:1]
        assert 0 not in chosen and len(set(chosen[0].tolist())) == 2
        first[chosen[0, 0]] += 1
        pairs += chosen[0].tolist() == [3, 5]
    p = torch.softmax(scores[0, 1:], 0)
    assert_close(first[1:] / draws, p.float(), rtol=0, atol=0.03)
    after = p[2] * p[4] / (1 - p[2])  # node 3 first, then node 5 of those that are left
    assert abs(pairs / draws - after) < 0.03


def test_no_score_is_too_large_or_too_small_to_be_drawn_from():
    scores = torch.full((N, N), 1e8, dtype=torch.float64)
    scores[:, 3:] = 0
    for redraw in (True, False):
        chosen = DAC(4, redraw=redraw).choose(500, scores, NODES)
        assert all(len(set(mine)) == 4 and i not in mine for i, mine in enumerate(chosen.tolist()))
        assert all({0, 1, 2} - {i} <= set(mine) for i, mine in enumerate(chosen.tolist()))


def test_a_diverged_model_is_as_good_as_unknown():
    losses = torch.tensor([2.0, math.nan, math.inf, 0.0])
    assert similarity(losses).tolist() == [0.5, 0, 0, pytest.approx(1e8)]


def test_a_frozen_draw_asks_the_same_peers_while_scores_stand_still():
    scores = torch.zeros(N, N, dtype=torch.float64)
    frozen, fresh = DAC(2, redraw=False), DAC(2)
    assert torch.equal(frozen.choose(3, scores, NODES), frozen.choose(4, scores, NODES))
    assert not torch.equal(fresh.choose(3, scores, NODES), fresh.choose(4, scores, NODES))


@pytest.mark.parametrize("algorithm", [DAC(N), RandomPeers(N), Oracle(N)])
def test_nobody_can_ask_more_peers_than_there_are(algorithm):
    with pytest.raises(InputError, match="6 nodes cannot ask 6 peers; use 0 to 5"):
        check(algorithm, NODES)


@pytest.mark.parametrize("option", ["tau", "samples"])
def test_dac_refuses_what_cannot_be(option):
    with pytest.raises(InputError, match=f"{option} must be at least 0, got -1"):
        DAC(**{option: -1})


def test_a_lone_node_asks_nobody():
    nodes = make_nodes((1,), n=1)
    for algorithm in (DAC(0), RandomPeers(0)):
        simulation = Simulation(algorithm, [nodes], DirectExchange(1))
        simulation.start()
        for t in range(2):
            simulation.round(t)
        assert simulation.states[0].params.isfinite().all()
