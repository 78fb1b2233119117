"""What the clients of a federated algorithm keep between rounds, for those alone that took part."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from coterie.core.federated import Federated
from coterie.core.nodes import Nodes
from coterie.core.transfer import to_device

GPU_SHARE = 0.25  # of a GPU's free memory: states that could grow beyond it lie in the host's


class Kept:
    """The rows of a block that have taken part; the others are made by `start` when needed."""

    def __init__(self, algorithm: Federated, nodes: Nodes) -> None:
        self.algorithm = algorithm
        self.nodes = nodes
        self.place = torch.full((len(nodes),), -1)  # [m] slot of each row's state; -1: none
        self.used = 0  # slots
        self.slots: dict[str, Tensor] = {}  # field -> [room, ...]

    def take(self, rows: Tensor) -> Any:
        """The state of these rows (on the CPU, each once)."""
        place = self.place[rows]
        fresh = place < 0
        if not self.slots or bool(fresh.all()):
            return self.algorithm.start(self.nodes[rows])
        old = place[~fresh]
        known = {name: s[to_device(old, s.device)] for name, s in self.slots.items()}
        known = {name: values.to(self.nodes.device) for name, values in known.items()}
        made = self.algorithm.start(self.nodes[rows[fresh]])
        if not bool(fresh.any()):
            return dataclasses.replace(made, **known)
        return dataclasses.replace(
            made, **{name: _woven(fresh, getattr(made, name), known[name]) for name in known}
        )

    def put(self, rows: Tensor, state: Any) -> None:
        """Keep the state of these rows."""
        new = rows[self.place[rows] < 0]
        self.place[new] = torch.arange(self.used, self.used + len(new))
        self.used += len(new)
        for field in dataclasses.fields(state):
            values = getattr(state, field.name)
            slots = self._with_room(field.name, values)
            slots[to_device(self.place[rows], slots.device)] = values.to(slots.device)

    def _with_room(self, name: str, like: Tensor) -> Tensor:
        """The slots of a field, at least as many as are used; their number grows by doubling."""
        slots = self.slots.get(name)
        if slots is None:
            size = like[:1].numel() * like.element_size() * len(self.nodes)
            slots = torch.empty(
                0, *like.shape[1:], dtype=like.dtype, device=_home(size, like.device)
            )
        if len(slots) < self.used:
            room = min(max(self.used, 2 * len(slots)), len(self.nodes))
            try:
                slots = _grown(slots, room)
            except torch.cuda.OutOfMemoryError:  # others want the GPU's memory too
                slots = _grown(slots.cpu(), room)
        self.slots[name] = slots
        return slots

    def whole(self, name: str, otherwise: int) -> Tensor:
        """A field of all rows of the block: [m, ...]; `otherwise` where there is no state."""
        if name not in self.slots:
            return torch.full((len(self.nodes),), otherwise, device=self.nodes.device)
        slots = self.slots[name]
        values = slots.new_full((len(self.nodes), *slots.shape[1:]), otherwise)
        rows = torch.nonzero(self.place >= 0).flatten()
        values[rows.to(slots.device)] = slots[self.place[rows].to(slots.device)]
        return values

    def tensors(self) -> dict[str, Tensor]:
        """Who has a state, by key, and its fields, in the order of the block."""
        rows = torch.nonzero(self.place >= 0).flatten()
        fields = {n: s[self.place[rows].to(s.device)].cpu() for n, s in self.slots.items()}
        return {"key": self.nodes.key[rows], **fields}

    def restore(self, tensors: dict[str, Tensor]) -> bool:
        """Keep what `tensors` gave, of this block's rows; False where it does not fit."""
        rows = torch.nonzero(torch.isin(self.nodes.key, tensors["key"])).flatten()
        made = self.algorithm.start(self.nodes[rows[:1]])
        like = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
        given = {name: values for name, values in tensors.items() if name != "key"}
        if len(rows) and {n: _kind(v) for n, v in like.items()} != {
            n: _kind(v) for n, v in given.items()
        }:
            return False
        mine = torch.isin(tensors["key"], self.nodes.key)
        state = {name: values[mine].to(self.nodes.device) for name, values in given.items()}
        if len(rows):
            self.put(rows, dataclasses.replace(made, **state))
        return True


def _grown(slots: Tensor, room: int) -> Tensor:
    """The slots and as many empty ones as make `room`."""
    return torch.cat([slots, slots.new_empty(room - len(slots), *slots.shape[1:])])


def _home(size: int, device: torch.device) -> torch.device:
    """Where states of so many bytes lie: on the device of the models, if they fit there."""
    if device.type == "cuda" and size > GPU_SHARE * torch.cuda.mem_get_info(device)[0]:
        return torch.device("cpu")
    return device


def _kind(values: Tensor) -> tuple[torch.dtype, torch.Size]:
    return values.dtype, values.shape[1:]


def _woven(fresh: Tensor, made: Tensor, known: Tensor) -> Tensor:
    """Rows in which the fresh ones are `made` and the others `known`."""
    rows = made.new_empty(len(fresh), *made.shape[1:])
    rows[to_device(torch.nonzero(fresh).flatten(), made.device)] = made
    rows[to_device(torch.nonzero(~fresh).flatten(), made.device)] = known
    return rows
