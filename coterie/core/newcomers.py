"""Nodes that come when training is over: what they take from some of those who were there."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.drawing import Drawing
from coterie.core.draws import WORD, shuffle
from coterie.core.nodes import Nodes

HOSTS = 5  # nodes that a newcomer asks


def apart(nodes: Nodes, rows: Tensor) -> Nodes:
    """These rows as a population of their own, as many of every replica, numbered from 0."""
    size = len(rows) // len(nodes.population.seeds)
    population = replace(nodes.population, n=size, drawing=Drawing())
    return replace(nodes[rows], population=population, key=torch.arange(len(rows)))


def hosts(nodes: Nodes, newcomers: Nodes, among: Tensor | None = None) -> Tensor:
    """The rows of some random nodes of each newcomer's replica, among all nodes: [q, hosts].

    `among` [q, n] says whom a newcomer may ask; -1 where there are no more.
    """
    words = newcomers.draw("hosts", 0, nodes.n)  # [q, n]
    asked = torch.ones_like(words, dtype=torch.bool) if among is None else among
    ids = shuffle(words.masked_fill(~asked, WORD))[:, :HOSTS]
    rows = newcomers.replica.to(ids.device)[:, None] * nodes.n + ids
    return torch.where(asked.gather(1, ids), rows, -1)


def mean_of(rows: Tensor, hosts: Tensor) -> Tensor:
    """The mean of each newcomer's hosts' rows: [m, ...], [q, hosts] -> [q, ...]."""
    there = (hosts >= 0).to(rows.dtype).view(*hosts.shape, *[1] * (rows.ndim - 1))
    total = rows[hosts[:, 0]] * there[:, 0]
    for number in range(1, hosts.shape[1]):  # one host after the other: models may be large
        total += rows[hosts[:, number]] * there[:, number]
    return total / there.sum(1)
