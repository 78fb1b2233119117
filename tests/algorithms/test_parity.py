"""Every registered algorithm gives the same run as one block, three, n, and over a link."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import coterie.algorithms  # noqa: F401  (registers the algorithms)
from coterie.core import algorithms
from coterie.runtimes.lockstep import DirectExchange, FrameExchange
from coterie.runtimes.simulate import FederatedSimulation, simulation_of
from tests.algorithms.world import N, build_net, build_with_domains, make_nodes

ROUNDS = 3
TINY = {  # where there is such an option
    "warmup": 1,
    "samples": 6,
    "all_reduce": True,
    "degree": 2,
    "clients": 4,
    "every": 2,
}
THREE = [torch.arange(0, 3), torch.arange(3, 4), torch.arange(4, N)]

VARIANTS = {  # options that draw or score in other ways
    "facade, exploring": {"name": "facade", "explore": 2, "leak": 0.2},
    "facade, independent": {"name": "facade", "scoring": "independent", "rescore_every": 1},
    "fedprox, stragglers": {"name": "fedprox", "stragglers": 0.5},
    "ifca, restarting": {"name": "ifca", "models": 2, "restart": 0.4, "shared_core": True},
}

every_algorithm = pytest.mark.parametrize("name", sorted(algorithms.entries))
every_variant = pytest.mark.parametrize("name", [*sorted(algorithms.entries), *VARIANTS])


def tiny(name):
    variant = VARIANTS.get(name, {"name": name})
    options = {option.name for option in algorithms[variant["name"]].options()}
    return algorithms.build({k: v for k, v in TINY.items() if k in options} | variant)


def whole(name, seeds=(1,)):
    build = build_with_domains if name == "fedcg" else build_net
    registered = VARIANTS.get(name, {"name": name})["name"]
    return make_nodes(seeds, oracle=algorithms[registered].oracle, build=build)


def played(name, blocks, exchange):
    """Every field of the state after every round, and of the personal models at the end."""
    simulation = simulation_of(tiny(name), blocks, exchange)
    simulation.start()
    history = [everything(simulation)]
    for t in range(ROUNDS):
        simulation.round(t)
        history.append(everything(simulation))
    simulation.finish(ROUNDS)
    personal = [models for _, models in simulation.personal()]
    return [*history, everything(simulation), {"personal": torch.cat(personal)}]


def everything(simulation):
    """All fields of all nodes' states; with a server its own too, and those of who took part."""
    if isinstance(simulation, FederatedSimulation):
        server = {f"server.{name}": rows for name, rows in fields([simulation.state]).items()}
        kept = simulation.tensors()
        kept["client.key"] = kept["client.key"] % N  # as if its replica were alone
        return server | kept
    return fields(simulation.states)


def fields(states):
    """All fields of a state, the blocks' rows together; a replica field is equal on all blocks."""

    def joined(field):
        rows = [getattr(state, field.name) for state in states]
        return rows[0] if field.metadata.get("axis") == "replica" else torch.cat(rows)

    return {field.name: joined(field) for field in dataclasses.fields(states[0])}


def same(history, expected):
    assert len(history) == len(expected)
    for mine, other in zip(history, expected, strict=True):
        assert mine.keys() == other.keys()
        for name in mine:  # integers, such as choices, have to be equal
            assert_close(mine[name], other[name], rtol=0, atol=1e-9)


def one_block(name, seeds=(1,)):
    exchange = DirectExchange(N, len(seeds))
    return played(name, [whole(name, seeds)], exchange), exchange.sent


@every_variant
@pytest.mark.parametrize("parts", [THREE, torch.arange(N).split(1)], ids=["3 blocks", "n blocks"])
def test_blocks_do_not_change_a_run(name, parts):
    nodes, exchange = whole(name), DirectExchange(N)
    expected, sent = one_block(name)
    same(played(name, [nodes[rows] for rows in parts], exchange), expected)
    assert exchange.sent.tolist() == sent.tolist()


@every_variant
def test_frames_over_a_link_do_not_change_a_run(name):
    nodes, exchange = whole(name), FrameExchange(N)
    expected, sent = one_block(name)
    same(played(name, [nodes[rows] for rows in torch.arange(N).split(1)], exchange), expected)
    assert exchange.sent.tolist() == sent.tolist()
    assert not exchange.link.boxes


@every_variant
def test_stacked_replicas_run_as_they_do_alone(name):
    seeds = (1, 2, 5)
    stacked, sent = one_block(name, seeds)
    alone = [one_block(name, (seed,)) for seed in seeds]
    joined = [
        {key: torch.cat([step[key] for step in steps]) for key in steps[0]}
        for steps in zip(*[history for history, _ in alone], strict=True)
    ]
    same(stacked, joined)
    assert sent.tolist() == torch.cat([bytes_ for _, bytes_ in alone]).tolist()


@every_variant
def test_the_same_seed_gives_the_same_bits_and_another_seed_another_run(name):
    first, again, other = (one_block(name, (seed,))[0] for seed in (1, 1, 2))
    assert torch.equal(first[-1]["personal"], again[-1]["personal"])
    assert not torch.allclose(first[-1]["personal"], other[-1]["personal"])
