"""Every algorithm computes where its models lie: what comes from the host is sent there first.

On a GPU a sum of two tensors on two devices fails, and no test has a GPU.
"""

from __future__ import annotations

import pytest
import torch

from coterie.core import algorithms
from coterie.runtimes import kept
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import simulation_of
from tests.algorithms.world import N, build_net, build_with_domains, make_nodes
from tests.on_device import HOST, elsewhere, nodes_on_device, seen

SEEDS, ROUNDS = (1, 2), 3
OPTIONS = {
    "scaffold": [{"fraction": 0.5}],
    "fedprox": [{"stragglers": 0.6, "drop": True}, {"stragglers": 0.6, "fraction": 0.7}],
    "ifca": [{"models": 3, "restart": 0.3}, {"shared_core": True, "pretrain": 1, "scattered": 1}],
    "hypcluster": [{"pretrain": False, "clients": 2}],
    "fedrep": [{"head_steps": 3, "core_steps": 1, "fraction": 0.5}],
    "facade": [{"explore": 2, "leak": 0.2}, {"scoring": "independent", "all_reduce": True}],
}
CASES = [
    {"name": name} | options
    for name in sorted(algorithms.entries)
    for options in ({}, *OPTIONS.get(name, ()))
]


def played(algorithm, nodes):
    """What comes of it: the models that nodes deploy and newcomers get, losses, choices, bytes."""
    simulation = simulation_of(algorithm, [nodes], DirectExchange(N, len(SEEDS)))
    simulation.start()
    for t in range(ROUNDS):
        simulation.round(t)
    simulation.finish(ROUNDS)
    found = [models for _, models in simulation.personal()]
    found += [models for _, models in simulation.adopted(nodes, nodes)]
    found += [simulation.head_losses(), simulation.chosen(), *simulation.notes().values()]
    return [seen(values) for values in found if values is not None]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_an_algorithm_gives_the_same_bits_on_another_device(options, monkeypatch):
    algorithm = algorithms.build(options)
    build = build_with_domains if options["name"] == "fedcg" else build_net
    here, there = (make_nodes(SEEDS, oracle=True, build=build) for _ in range(2))
    expected = played(algorithm, here)
    nodes = nodes_on_device(there, monkeypatch)
    with elsewhere(may_look=True):
        found = played(algorithm, nodes)
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["scaffold", "fedrep", "ifca"])
def test_what_clients_keep_may_lie_on_the_host_of_that_device(name, monkeypatch):
    algorithm = algorithms.build({"name": name, "fraction": 0.5})
    expected = played(algorithm, make_nodes(SEEDS))
    monkeypatch.setattr(kept, "_home", lambda size, device: HOST)
    nodes = nodes_on_device(make_nodes(SEEDS), monkeypatch)
    with elsewhere(may_look=True):
        found = played(algorithm, nodes)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
