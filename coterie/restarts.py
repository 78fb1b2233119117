"""Runs whose choices have not settled early start again with another seed, reported as such.

The true clusters decide, so this is a tool of a study and no part of an algorithm: every abandoned
start is kept with its seed and the reason. Data and clusters stay those of the original seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from coterie.config import Config
from coterie.core.drawing import Drawing
from coterie.core.nodes import Nodes
from coterie.metrics import settlement
from coterie.part import Metrics, Part, Stopped, Watch, make_simulation, name_of, options_of
from coterie.runtimes.checkpoint import read_json, write_atomically

STEP = 123456  # what a new start adds to the seed, as in the thesis's runner

Abandoned = list[list[Metrics]]  # of every replica, the starts that did not settle


def screened(config: Config, part: Part, out: Path, watch: Watch) -> Part:
    """The part with seeds that settle within `evaluate.restart` rounds, as far as they are found.

    Trials are played ahead of the run and leave no records of their own.
    """
    if not config.evaluate.restart:
        return part
    return reseeded(part, _trials(config, part, out / "checkpoints" / f"{part.name}.trials", watch))


def reseeded(part: Part, abandoned: Abandoned) -> Part:
    """The part with another seed for every replica that abandoned some."""
    seeds = tuple(
        replica.seed + STEP * len(starts)
        for replica, starts in zip(part.replicas, abandoned, strict=True)
    )
    return replace(
        part,
        nodes=_with_seeds(part.nodes, seeds),
        newcomers=None if part.newcomers is None else _with_seeds(part.newcomers, seeds),
        abandoned=tuple(tuple(starts) for starts in abandoned),
    )


def _with_seeds(nodes: Nodes, seeds: tuple[int, ...]) -> Nodes:
    return replace(nodes, population=replace(nodes.population, seeds=seeds, drawing=Drawing()))


def only(part: Part, replicas: Sequence[int]) -> Part:
    """Some replicas of a part, as a part of their own, without newcomers."""
    n = part.nodes.n
    rows = torch.cat([torch.arange(n) + r * n for r in replicas])
    seeds = tuple(part.nodes.population.seeds[r] for r in replicas)
    return replace(
        part,
        nodes=_with_seeds(replace(part.nodes[rows], key=torch.arange(len(rows))), seeds),
        newcomers=None,
        replicas=tuple(part.replicas[r] for r in replicas),
        clusters=tuple(part.clusters[r] for r in replicas),
        parity_reasons=tuple(part.parity_reasons[r] for r in replicas),
    )


def _trials(config: Config, part: Part, path: Path, watch: Watch) -> Abandoned:
    """Play the first rounds until all replicas settle, or have started again often enough.

    What is done is kept in a file after every trial, so that an interrupted run goes on there.
    """
    known = read_json(path) if path.exists() else {}
    abandoned: Abandoned = known.get("lost", [[] for _ in part.replicas])
    for number in range(known.get("played", 0), config.evaluate.restarts):
        left = [replica for replica, starts in enumerate(abandoned) if len(starts) == number]
        if not left:
            break
        trial = reseeded(only(part, left), [abandoned[r] for r in left])
        lost = _lost(config, replace(trial, name=f"{part.name}, trial {number + 1}"), watch)
        for place, start in lost.items():
            abandoned[left[place]].append(start)
        found = {"played": number + 1, "lost": abandoned}
        write_atomically(path, json.dumps(found, indent=1).encode())
        if lost:
            watch.plan(
                f"{part.name}: {len(lost)} of {len(left)} had not settled after round "
                f"{config.evaluate.restart} and start again with another seed"
            )
    return abandoned


def _lost(config: Config, trial: Part, watch: Watch) -> dict[int, Metrics]:
    """The replicas of a trial that did not settle: seed, round, reason and what a node has sent."""
    options = options_of(trial.algorithm)
    if not any(settlement.can_settle(options, names) for names in trial.clusters):
        return {}
    simulation, rounds = make_simulation(config, trial), config.evaluate.restart
    simulation.start()
    watch.part(trial.name, 0, rounds)
    for t in range(rounds):
        simulation.round(t)
        watch.round(t + 1)
        if simulation.chosen() is None:  # nothing to settle
            return {}
        if watch.stop():
            raise Stopped([])
    chosen = simulation.chosen()
    assert chosen is not None
    choices = chosen.cpu().numpy().reshape(len(trial.replicas), -1)
    sent = simulation.exchange.sent.double().view(len(trial.replicas), -1).mean(1).tolist()
    lost = {}
    for place, names in enumerate(trial.clusters):
        judge = settlement.judge_of(options, names)
        why = settlement.problems(choices[place], names, judge, name_of(trial.algorithm))
        if why and settlement.can_settle(options, names):
            seed = trial.nodes.population.seeds[place]
            start = {"seed": seed, "round": rounds, "why": why, "bytes_per_node": sent[place]}
            lost[place] = start
    return lost
