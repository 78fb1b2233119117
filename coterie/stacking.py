"""What trains together: seeds, ratios and learning rates of one algorithm, as many as fit.

Replicas of one size are stacked in one block, also those of algorithms that differ in nothing but
their learning rate. What does not fit into memory is cut into parts of about one size. The
plan is written beside the checkpoints, because a run that goes on has to keep it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coterie.block import Stack
from coterie.config import AlgorithmTable, Config
from coterie.core.federated import Federated
from coterie.core.samples import Samples
from coterie.data.holdings import Holdings, Replica
from coterie.errors import InputError
from coterie.part import Part
from coterie.runtimes.checkpoint import write_atomically

CPU_BYTES = 8 << 30  # that a stack may take on a CPU, and at most half of the machine's memory
GPU_SHARE = 0.9  # of what is free on a GPU

Cell = tuple[str, str, int]  # label, scenario, seed
Plan = list[list[Cell]]  # the replicas of every part


def alike(config: Config) -> list[list[AlgorithmTable]]:
    """The algorithms in groups that differ in label and learning rate alone."""
    groups: dict[str, list[AlgorithmTable]] = {}
    for table in config.algorithm:
        train = config.train_of(table).model_dump(exclude={"lr"})
        model = config.model_of(table).model_dump()
        kind = json.dumps([table.name, table.options, train, model], sort_keys=True, default=repr)
        # over a link every replica is alone, and nothing is stacked
        key = config.label(table) if config.runtime.link == "memory" else kind
        groups.setdefault(key, []).append(table)
    return list(groups.values())


def widened(stack: Stack, rates: dict[str, float]) -> Stack:
    """The stack once for every label, each with its own learning rate."""
    times, held = len(rates), stack.holdings
    rows = len(held.cluster)
    every = torch.arange(rows).repeat(times)
    return replace(
        _taken(stack, every),
        replicas=tuple(replace(r, label=label) for label in rates for r in stack.replicas),
        lr=torch.tensor(list(rates.values()), dtype=torch.float64).repeat_interleave(rows),
    )


def some(stack: Stack, numbers: Sequence[int]) -> Stack:
    """Some replicas of a stack."""
    rows = torch.cat([torch.arange(stack.n) + number * stack.n for number in numbers])
    return replace(_taken(stack, rows), replicas=tuple(stack.replicas[n] for n in numbers))


def _taken(stack: Stack, rows: Tensor) -> Stack:
    """The nodes of these rows; the samples themselves are shared."""
    held = stack.holdings

    def taken(samples: Samples) -> Samples:
        return samples[rows]

    return replace(
        stack,
        holdings=Holdings(
            taken(held.train), taken(held.valid), taken(held.test), held.cluster[rows]
        ),
        unseen=None if stack.unseen is None else stack.unseen[rows],
        lr=None if stack.lr is None else stack.lr[rows],
    )


def cells(replicas: Sequence[Replica]) -> list[Cell]:
    """What the replicas of a part are called in records and tables."""
    return [(replica.label, replica.scenario, replica.seed) for replica in replicas]


def shares(part: Part, room: int) -> list[list[int]]:
    """The replicas of a part in as few pieces of about one size as fit into these bytes."""
    count = len(part.replicas)
    for pieces in range(1, count + 1):
        size = -(-count // pieces)
        if size == 1 or Demand.of(part, size).bytes <= room:
            break
    return [list(range(first, min(first + size, count))) for first in range(0, count, size)]


def planned_shares(replicas: Sequence[Replica], plan: Plan) -> list[list[int]]:
    """The replicas of a stack as a plan cut them."""
    place = {cell: number for number, cell in enumerate(cells(replicas))}
    cut = [[place[cell] for cell in piece] for piece in plan if piece and piece[0] in place]
    if sorted(number for piece in cut for number in piece) != list(range(len(replicas))):
        raise InputError(
            "the plan in checkpoints/plan.json belongs to another configuration; delete the "
            "folder `checkpoints` to compute everything afresh"
        )
    return cut


def room(device: torch.device) -> int:
    """How many bytes a stack may take."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(GPU_SHARE * torch.cuda.mem_get_info(device)[0])
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return CPU_BYTES
    return min(CPU_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


@dataclass(frozen=True)
class Demand:
    """What some replicas of a part need."""

    rows: int  # that train in a round
    bytes: int

    @staticmethod
    def of(part: Part, replicas: int) -> Demand:
        """The rows of these many replicas, and about how much memory they take."""
        nodes, algorithm = part.nodes, part.algorithm
        rows = replicas * nodes.n
        if isinstance(algorithm, Federated):
            rows = replicas * algorithm.cohort().size(nodes.n)
        engine = nodes.population.engine
        model = engine.layout.size * torch.empty((), dtype=engine.dtype).element_size()
        # the engine counts one model a row; the state may hold more, before and after a round
        more = max(0, _bytes(algorithm.start(nodes[torch.arange(1)])) - model)
        return Demand(rows, engine.memory(rows) + 2 * rows * more)


def _bytes(state: Any) -> int:
    values = [getattr(state, field.name) for field in dataclasses.fields(state)]
    return sum(value.nbytes for value in values if isinstance(value, Tensor))


def plan_line(part: Part) -> str:
    """What a part stacks, and about how much memory that takes."""
    replicas, rows = len(part.replicas), len(part.nodes)
    stack = f"{replicas} x {part.nodes.n} nodes = {rows} rows" if replicas > 1 else f"{rows} nodes"
    demand = Demand.of(part, replicas)
    if demand.rows < rows:
        stack += f", of which {demand.rows} train in a round"
    labels = dict.fromkeys(replica.label for replica in part.replicas)
    named = f" ({', '.join(labels)})" if len(labels) > 1 else ""
    return f"plan: {part.name}{named}: {stack}, about {max(demand.bytes / 2**30, 0.01):.2f} GiB"


def part_names(config: Config, labels: Sequence[str], pieces: int) -> list[str]:
    """File names for the parts of some labels: no other part has them."""
    taken = {config.label(table) for table in config.algorithm} - set(labels)
    base = labels[0] if len(labels) == 1 else f"{labels[0]}+{len(labels) - 1}"
    while base in taken:
        base += "+"
    return [base] if pieces == 1 else [f"{base}.{number}" for number in range(pieces)]


def write_plan(out: Path, parts: Sequence[Part]) -> None:
    """Keep the plan for a run that goes on, where none is kept yet."""
    path = out / "checkpoints" / "plan.json"
    plan = [{"name": part.name, "replicas": cells(part.replicas)} for part in parts]
    if not path.exists():
        write_atomically(path, json.dumps(plan, indent=1).encode())


def read_plan(out: Path) -> Plan | None:
    """The plan of a run folder; None where there is none."""
    path = out / "checkpoints" / "plan.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        return [[(str(a), str(b), int(c)) for a, b, c in part["replicas"]] for part in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the plan {path} cannot be read ({error}); delete the folder `checkpoints` to compute "
            "everything afresh"
        ) from None
