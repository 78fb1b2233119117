"""DisPFL (Dai et al., 2022), layer after layer as its authors run it.

A model and a mask are dicts from layer to a flat vector. `train(i, w, mask, t)` is node i's local
training with re-masking after each step, `promise(i, w, t)` a number for every weight: the absolute
gradient on one batch, or a random number. `buffers` are averaged like weights that all have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class DisPFL:
    """The hyper-parameters, and what a node can do."""

    drop: float
    horizon: int
    train: Callable
    promise: Callable
    peers: Callable


def run(box: DisPFL, models, masks, rounds):
    """Models, the masks they were trained under and the next masks, after all rounds."""
    models, local = list(models), list(masks)
    shared = list(masks)  # the masks under which the models were trained
    for t in range(rounds):
        last, last_shared, last_local = list(models), list(shared), list(local)
        for i in range(len(models)):
            who = sorted([i, *box.peers(i, t)])
            w = aggregate([last[j] for j in who], [last_shared[j] for j in who], last_local[i])
            shared[i] = last_local[i]
            models[i] = box.train(i, w, last_local[i], t)
            local[i] = evolve(box, i, models[i], last_local[i], t)
    return models, shared, local


def aggregate(models, masks, own):
    """sum of w_j / sum of m_j, 0 where nobody has the weight, times the own mask."""
    mixed = {}
    for name in own:
        total = sum(w[name] for w in models)
        count = sum(mask[name].double() for mask in masks)
        mixed[name] = torch.where(count > 0, total / count, 0) * own[name]
    return mixed


def evolve(box: DisPFL, i, w, mask, t):
    """Prune the smallest weights of each layer, then regrow as many of those that are not there."""
    share = box.drop / 2 * (1 + math.cos(math.pi * t / box.horizon))
    promise = box.promise(i, w, t)
    new = {}
    for name in mask:
        there = [place for place, bit in enumerate(mask[name]) if bit]
        count = math.ceil(share * len(there))
        pruned = sorted(there, key=lambda place, name=name: abs(w[name][place].item()))[:count]
        left = set(there) - set(pruned)
        absent = [place for place in range(len(mask[name])) if place not in left]
        back = sorted(absent, key=lambda place, name=name: -promise[name][place].item())[:count]
        new[name] = torch.tensor([place in left | set(back) for place in range(len(mask[name]))])
    return new


def erk(shapes, density, power=1.0):
    """Layer densities by the Erdős-Rényi-Kernel rule, one dense layer after the other."""
    dense = set()
    while True:
        wanted = divisor = 0.0
        raw = {}
        for name, shape in shapes.items():
            size = math.prod(shape)
            if name in dense:
                wanted -= size * (1 - density)
            else:
                wanted += size * density
                raw[name] = (sum(shape) / size) ** power
                divisor += raw[name] * size
        epsilon = wanted / divisor
        largest = max(raw.values())
        if epsilon * largest <= 1:
            return {name: 1.0 if name in dense else epsilon * raw[name] for name in shapes}
        dense |= {name for name in raw if raw[name] == largest}
