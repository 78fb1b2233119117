"""The family of models of a run as data: a line a model in `dag.jsonl` of the run folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from coterie.core.lineage import Lineage
from coterie.metrics.family import Model, extinction
from coterie.runtimes.checkpoint import write_atomically

Record = dict[str, Any]
NAME = "dag.jsonl"
KINDS = ("model", "alive")


def family_records(lineage: Lineage | None, done: int, where: Sequence[Record]) -> Iterator[Record]:
    """The models that a round brought forth, and who trained how many; `where`: by replica."""
    if lineage is None:
        return
    lineage = lineage.cpu()
    for replica, place in enumerate(where):
        count = int(lineage.count[replica])
        trained = lineage.trained[replica].tolist()
        yield {"kind": "alive", **place, "born": done, "count": count, "trained": trained}
        for number in range(count):
            yield {"kind": "model", **place, "born": done, **_model(lineage, replica, number)}


def alive(lineage: Lineage | None, replica: int) -> int | None:
    """How many models are alive, where there is a family of them."""
    return None if lineage is None else int(lineage.count[replica])


def _model(lineage: Lineage, replica: int, number: int) -> Record:
    return {
        "id": _hex(lineage.ids[replica, number]),
        "parent": _hex(lineage.parents[replica, number]),
        "updates": _members(lineage.merged[replica, number]),
        "followers": _members(lineage.followers[replica, number]),
        "popularity": float(lineage.popularity[replica, number]),
    }


def _hex(row: Tensor) -> str:
    return bytes(row.tolist()).hex()


def _members(mask: Tensor) -> list[int]:
    members: list[int] = mask.nonzero().flatten().tolist()
    return members


def without_family(folder: Path, entries: Iterable[tuple[bytes, Record]]) -> bytes:
    """The lines of records that are not of a family; those that are go to `dag.jsonl`."""
    plain, family = [], []
    for line, record in entries:
        family.append(record) if record["kind"] in KINDS else plain.append(line)
    if family:
        write_family(folder, family)
    return b"".join(line + b"\n" for line in plain)


def write_family(folder: Path, records: Sequence[Record]) -> None:
    """Write `dag.jsonl`, now that it is known which models died, and when."""
    known: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        known.setdefault((record["label"], record["scenario"], record["seed"]), []).append(record)
    lines = [json.dumps(record) for own in known.values() for record in _dated(own)]
    write_atomically(folder / NAME, "".join(f"{line}\n" for line in lines).encode())


def _dated(records: Sequence[Record]) -> Iterator[Record]:
    dates = extinction([Model.of(r) for r in records if r["kind"] == "model"])
    for record in records:
        extinct = {"extinct": dates[record["id"]]} if record["kind"] == "model" else {}
        yield record | extinct
