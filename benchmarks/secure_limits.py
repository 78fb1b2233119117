"""What do sums give away over rounds, and to members that collude? Measured, drawn, printed.

    python benchmarks/secure_limits.py [--nodes 40] [--rounds 150] [--out docs/figures]

Differencing: a sealed run of PPDL (digits, a linear model, groups of 3) is played; what its nodes
learnt, whom they asked and the sums, is set against the models behind the sums. Collusion: chance
and linear algebra alone, for 100 nodes. Draws differencing.svg and collusion.svg, prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure

import coterie
from coterie.run import make_parts, prepare, resolved
from coterie.runtimes.lockstep import DirectExchange
from coterie.runtimes.simulate import Simulation

MEMBERS = 3
AFTER = (10, 50, 130)  # rounds from which two sums are taken
COLLUDERS = np.array([2, 3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80])


class Seen(DirectExchange):
    """An exchange that notes whom every node asked, and the models that were added up."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.groups: list[np.ndarray] = []  # [n, M] a round
        self.models: list[np.ndarray] = []  # [n, P] a round

    def superstep(self, t, step, keys, messages):
        (message,) = messages
        self.groups.append(message.asked.numpy())
        weight = message.rows["weight"][:, None]
        self.models.append((message.rows["params"] / weight).double().numpy())
        return super().superstep(t, step, keys, messages)


def played(nodes: int, rounds: int) -> Seen:
    """A sealed run of PPDL."""
    minority = 2 * nodes // 5
    clusters = [
        {"name": "upright", "nodes": nodes - minority},
        {"name": "turned", "nodes": minority, "shifts": ["rotation"]},
    ]
    config = coterie.Config(
        experiment={"rounds": rounds, "seeds": [1]},
        data={"source": "digits", "holdout": 0.25, "clusters": clusters},
        model={"name": "logistic"},
        train={"epochs": 1},
        algorithm=[{"name": "ppdl", "sealed": True, "group": MEMBERS}],
    )
    (part,) = make_parts(prepare(resolved(config), "cpu"))
    seen = Seen(nodes)
    simulation = Simulation(part.algorithm, [part.nodes], seen)
    simulation.start()
    for t in range(rounds):
        simulation.round(t)
    return seen


def uniform(nodes: int, rounds: int, random: np.random.Generator) -> np.ndarray:
    """Random groups of one node among the others: [rounds, M]."""
    draws = random.random((rounds, nodes - 1)).argsort(axis=1)
    return draws[:, :MEMBERS]


def followers(groups: np.ndarray, nodes: int) -> list[int]:
    """By round: how many peers' models all sums so far determine, if models stood still."""
    sums = np.zeros((len(groups), nodes))
    np.put_along_axis(sums, groups, 1.0, axis=1)
    return [determined(sums[: t + 1]) for t in range(len(groups))]


def determined(sums: np.ndarray) -> int:
    """How many unknowns a system of sums [equations, unknowns] has a single answer for."""
    _, sizes, rows = np.linalg.svd(sums, full_matrices=False)
    space = rows[sizes > 1e-9 * max(sizes.max(initial=0), 1)]
    return int((np.square(space).sum(axis=0) > 1 - 1e-8).sum())


def neighbors(groups: np.ndarray) -> list[int]:
    """By round: pairs of sums so far that differ in one member alone."""
    sets = [frozenset(group) for group in groups.tolist()]
    found = [sum(len(sets[t] & sets[s]) == MEMBERS - 1 for s in range(t)) for t in range(len(sets))]
    return np.cumsum(found).tolist()


def unknown(models: list[np.ndarray], first: int, apart: int, random: np.random.Generator) -> float:
    """What is left unknown of a model after two sums, one without it, so many rounds apart.

    The others have moved meanwhile; whoever takes the difference allows for how the mean of all
    models did. The distance of the answer from the model, in units of that of the mean: 0 is all, 1
    is nothing. The median over random groups.
    """
    now, later, left = models[first], models[first + apart], []
    moved = (MEMBERS - 1) * (later.mean(0) - now.mean(0))
    for _ in range(300):
        victim, *others = random.permutation(len(now))[:MEMBERS]
        wrong = now[others].sum(0) - later[others].sum(0) + moved
        left.append(np.linalg.norm(wrong) / np.linalg.norm(now.mean(0) - now[victim]))
    return float(np.median(left))


def pooled(nodes: int, colluders: int, members: int, random: np.random.Generator) -> float:
    """The share of the others' models that follow from the sums of one round, put together."""
    shares = []
    for _ in range(40):
        sums = np.zeros((colluders, nodes))
        for me in range(colluders):
            peers = np.delete(np.arange(nodes), me)
            sums[me, random.choice(peers, members, replace=False)] = 1
        shares.append(determined(sums[:, colluders:]) / (nodes - colluders))
    return float(np.mean(shares))


def ever(nodes: int, colluders: int, members: int, rounds: int) -> float:
    """The chance that once some colluder's group is a node and colluders alone."""
    if colluders < members:
        return 0.0
    once = math.comb(colluders - 1, members - 1) / math.comb(nodes - 1, members)
    return 1 - (1 - once) ** (colluders * rounds)


def draw_differencing(seen: Seen, nodes: int, out: Path) -> dict:
    random = np.random.default_rng(1)
    mine = np.stack(seen.groups, axis=1)  # [n, rounds, M]
    rounds = mine.shape[1]
    some = range(0, nodes, max(1, nodes // 10))
    chance = [uniform(nodes, rounds, random) for _ in some]
    wide = [uniform(100, rounds, random) for _ in some]
    apart = [1, 2, 3, 4, 5, 7, 10, 15]
    pairs = {f"uniform, {nodes} nodes": chance, f"PPDL, {nodes} nodes": [mine[i] for i in some]}
    pairs = {**pairs, "uniform, 100 nodes": wide}
    figure = Figure(figsize=(10.2, 3.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    found: dict = {"pairs": {}, "determined": {}, "unknown": {}}
    for name, groups in pairs.items():
        size = 100 if "100" in name else nodes
        counted = np.mean([neighbors(one) for one in groups], axis=0)
        solved = np.mean([followers(one, size) for one in groups], axis=0) / (size - 1)
        left.plot(range(1, rounds + 1), np.maximum(counted, 0.1), label=name)
        middle.plot(range(1, rounds + 1), 100 * solved, label=name)
        found["pairs"][name] = float(counted[-1])
        found["determined"][name] = [round(float(solved[t]), 3) for t in (49, 99, rounds - 1)]
    for after in AFTER:
        line = [unknown(seen.models, after, gap, random) for gap in apart]
        right.plot(apart, line, marker="o", ms=3, label=f"after round {after}")
        found["unknown"][after] = dict(zip(apart, np.round(line, 2).tolist(), strict=True))
    right.axhline(1, color="#808890", ls=":", label="no more than the mean of all")
    left.set(title="sums that differ in one member", xlabel="rounds", ylabel="pairs", yscale="log")
    middle.set(title="if models stood still", xlabel="rounds", ylabel="% of peers' models known")
    right.set(title="but models move", xlabel="rounds between two such sums", ylabel="left unknown")
    right.set_ylim(0, 1.4)
    save(figure, (left, middle, right), out / "differencing.svg")
    return found


def draw_collusion(nodes: int, rounds: int, out: Path) -> dict:
    random = np.random.default_rng(2)
    figure = Figure(figsize=(6.8, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    found: dict = {"ever": {}, "pooled": {}}
    for members in (2, 3, 5, 10):
        once = [100 * ever(nodes, int(c), members, rounds) for c in COLLUDERS]
        together = [100 * pooled(nodes, int(c), members, random) for c in COLLUDERS]
        left.plot(COLLUDERS, once, label=f"M = {members}")
        right.plot(COLLUDERS, together, label=f"M = {members}")
        found["ever"][members] = dict(zip(COLLUDERS.tolist(), np.round(once, 1), strict=True))
        found["pooled"][members] = dict(zip(COLLUDERS.tolist(), np.round(together, 1), strict=True))
    names = f"nodes of {nodes} that collude", "% of the others' models open"
    left.set(title=f"a group of colluders and one, in {rounds} rounds", xlabel=names[0])
    left.set_ylabel(names[1])
    right.set(title="all their sums of one round", xlabel=names[0])
    save(figure, (left, right), out / "collusion.svg")
    return found


def save(figure: Figure, axes: tuple, path: Path) -> None:
    """As a small file that is the same whenever the numbers are."""
    rcParams["svg.hashsalt"], rcParams["svg.fonttype"] = "coterie", "none"
    for axis in axes:
        axis.title.set_fontsize(9)
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=7, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    found = draw_differencing(played(options.nodes, options.rounds), options.nodes, options.out)
    found |= draw_collusion(100, options.rounds, options.out)
    print(json.dumps({"benchmark": "secure_limits", **found}, default=float))


if __name__ == "__main__":
    main()
