"""What does choosing a group of peers cost: 100 nodes, groups of 3, 156,849 arms a node?

    python benchmarks/bandit.py [--nodes 100] [--group 3] [--rounds 150] [--device cpu]

Plays all rounds of the bandits alone, with a toy reward (0.02 for every peer of the own cluster,
noise, accuracy that rises with the rounds). Prints the seconds, the competitive sets on the way and
how many peers of the own cluster were drawn, then JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import time

import torch

from coterie.algorithms import bandit as bandits
from coterie.algorithms.groups import groups_of
from coterie.core.draws import draw, uniform


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--group", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--q", type=float, default=0.1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    begin = time.perf_counter()
    groups = groups_of(options.nodes - 1, options.group, options.group, device)
    made = time.perf_counter() - begin
    ids = torch.arange(options.nodes, device=device)
    cluster = (ids < 0.4 * options.nodes).long()
    state = bandits.no_trials(options.nodes, options.group, device)
    path = []
    begin = time.perf_counter()
    for t in range(options.rounds):
        state = bandits.roomy(state, t)
        choice = bandits.choose(state, groups, draw(1, "group", t, ids, 1)[:, 0])
        alike = (cluster[groups.of(choice.arm, ids)] == cluster[:, None]).sum(1)
        noise = uniform(draw(1, "noise", t, ids, 4)).sum(1) - 2  # about normal, deviation 0.58
        reward = (0.2 + 0.2 * t / options.rounds + 0.02 * alike + 0.07 * noise).clamp(0, 1)
        state = bandits.learn(state, choice, reward, options.q, torch.ones_like(ids).bool())
        path.append((choice.competitive.double().mean().item(), alike.double().mean().item()))
    seconds = time.perf_counter() - begin
    print(
        f"{len(groups):,} arms a node; tables {made:.2f} s, {options.rounds} rounds {seconds:.2f} s"
    )
    print(f"{'round':>6}{'competitive':>13}{'alike':>7}")
    shown = sorted({*range(0, options.rounds, 25), options.rounds - 1})
    for t in shown:
        print(f"{t:>6}{path[t][0]:>13,.0f}{path[t][1]:>7.2f}")
    facts = {"machine": platform.processor() or platform.machine(), "device": options.device}
    print(json.dumps({"benchmark": "bandit", **vars(options), **facts, "seconds": seconds}))


if __name__ == "__main__":
    main()
