"""A device that is not there: tensors at which the host may not look during a round.

Whoever does so on a GPU waits until the GPU has come that far. Here it raises `HostLooked`.
Whoever computes with a tensor there and one on the host fails on a GPU. Here, inside `elsewhere`,
it raises `Apart`. The device calls itself `meta`: torch knows no other that needs no machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_leaves, tree_map_only

import coterie.core.transfer
from coterie.algorithms.bandit import AT_ONCE
from coterie.core import Nodes, Population
from coterie.core.engine import Engine, Scores, Work
from coterie.core.samples import Pool, Samples

aten = torch.ops.aten
HOST, DEVICE = torch.device("cpu"), torch.device("meta")
LOOKS = {  # a number for Python, or a shape that depends on values
    aten._local_scalar_dense,
    aten.equal,
    aten.nonzero,
    aten.masked_select,
    aten.bincount,
    aten.repeat_interleave,
    aten._unique,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
}


class HostLooked(AssertionError):
    """The host would have waited for a GPU."""


class Apart(AssertionError):
    """Two tensors of one sum would lie on two devices."""


class OnDevice(Tensor):
    """A tensor that lies elsewhere, and all that is computed from it."""

    inner: Tensor
    may_look = False  # or it raises

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=DEVICE
        )
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self._looked("tolist").tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return self._looked("numpy").numpy(force=force)

    def cpu(self, *_: Any, **__: Any) -> Tensor:
        return self._looked("cpu")

    def new_tensor(self, data: Any, **options: Any) -> Any:
        return hidden(self.inner.new_tensor(data, **options))

    def _looked(self, how: str) -> Tensor:
        if not OnDevice.may_look:
            raise HostLooked(how)
        return self.inner

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        to_host = kwargs.get("device") == HOST
        looks = to_host or func.overloadpacket in LOOKS or _by_mask(func, args)
        if looks and not cls.may_look:
            raise HostLooked(str(func))
        if _apart(func, args, kwargs):
            raise Apart(str(func))
        args, kwargs = seen((args, kwargs))
        made = func(*args, **kwargs)
        return made if to_host else hidden(made)


class _Elsewhere(TorchDispatchMode):
    """What is made on the device, or sent there, is hidden."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") != DEVICE:
            return func(*args, **kwargs)
        args, kwargs = seen((args, {**kwargs, "device": HOST}))
        return hidden(func(*args, **kwargs))


@contextmanager
def elsewhere(may_look: bool = False) -> Iterator[None]:
    """Inside, tensors can be made on the device, and must not meet those of the host."""
    with pytest.MonkeyPatch.context() as patch, _Elsewhere():
        patch.setattr(OnDevice, "may_look", may_look)
        patch.setattr(torch, "tensor", _made(torch.tensor))
        patch.setattr(torch, "as_tensor", _made(torch.as_tensor))
        patch.setitem(AT_ONCE, DEVICE.type, AT_ONCE[HOST.type])
        yield


def _made(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A maker of tensors from numbers, which torch does not show to its modes."""

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Any:
        there = device is not None and torch.device(device) == DEVICE
        if not there:
            return make(data, device=device, **options)
        return hidden(make(seen(data), device=HOST, **options))

    return tensor


def _apart(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether it fails on a GPU: only numbers, indices and copies may come from the host."""
    if func.overloadpacket in (aten.copy_, aten._to_copy):
        return False
    if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_):
        args = (args[0], *args[2:])
    tensors = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
    return any(not isinstance(tensor, OnDevice) and tensor.dim() for tensor in tensors)


def _by_mask(func: Any, args: Any) -> bool:
    """Whether rows are picked by a mask, so that somebody has to count them."""
    if func.overloadpacket not in (aten.index, aten.index_put, aten.index_put_):
        return False
    return tree_any(lambda part: isinstance(part, Tensor) and part.dtype == torch.bool, args[1])


def hidden(values: Any) -> Any:
    """The tensors among some values on the device."""
    return tree_map_only(Tensor, lambda t: t if isinstance(t, OnDevice) else OnDevice(t), values)


def seen(values: Any) -> Any:
    """The same tensors where one can look at them."""
    return tree_map_only(OnDevice, lambda tensor: tensor.inner, values)


@dataclass(eq=False)
class EngineOnDevice(Engine):
    """Another engine whose rows lie on the device; what it does there is its own affair."""

    real: Engine

    def __post_init__(self) -> None:
        self.layout, self.device = self.real.layout, DEVICE
        self.dtype = self.real.dtype

    def memory(self, rows: int) -> int:
        return self.real.memory(rows)

    def initial(self, seeds: list[int]) -> Tensor:
        return self._done(self.real.initial, seeds)

    def train(self, params: Tensor, work: Work) -> Tensor:
        values = {field.name: getattr(work, field.name) for field in fields(work)}
        bare = Work(**{**seen(values), "samples": samples_seen(work.samples)})
        return self._done(self.real.train, params, bare)

    def losses(self, params: Tensor, samples: Samples, ids: Tensor, real: Tensor) -> Tensor:
        return self._done(self.real.losses, params, samples_seen(samples), ids, real)

    def gradients(self, params: Tensor, samples: Samples, ids: Tensor) -> Tensor:
        return self._done(self.real.gradients, params, samples_seen(samples), ids)

    def scores(self, params: Tensor, samples: Samples) -> Scores:
        scores = self.real.scores(seen(params), samples_seen(samples))
        return Scores(hidden(scores.loss), hidden(scores.confusion))

    def _done(self, work: Callable[..., Tensor], *values: Any) -> Tensor:
        made: Tensor = hidden(work(*seen(values)))
        return made


def _pool(pool: Pool, where: Callable[[Any], Any]) -> Pool:
    return replace(pool, inputs=where(pool.inputs), targets=where(pool.targets))


def _samples(samples: Samples, where: Callable[[Any], Any]) -> Samples:
    moved = [where(values) for values in (samples.index, samples.start, samples.count)]
    return Samples(_pool(samples.pool, where), *moved)


def samples_seen(samples: Samples) -> Samples:
    """Samples at which one can look."""
    return _samples(samples, seen)


def samples_hidden(samples: Samples) -> Samples:
    """Samples on the device, after a first round in which the host has learned how many."""
    made = _samples(samples, hidden)
    vars(made)["owned"] = samples.owned
    return made


def _sent(values: Tensor, device: torch.device) -> Any:
    return hidden(values) if device == DEVICE else values


def nodes_on_device(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """The block on the device; from now on `to_device` moves tensors there."""
    send = coterie.core.transfer.to_device
    for module in list(sys.modules.values()):
        if module.__name__.startswith("coterie") and vars(module).get("to_device") is send:
            monkeypatch.setattr(module, "to_device", _sent)
    old = nodes.population
    engine = EngineOnDevice(old.engine)
    return Nodes(
        population=Population(old.n, old.seeds, engine, old.work, old.common_start),
        key=nodes.key,
        train_data=samples_hidden(nodes.train_data),
        valid_data=samples_hidden(nodes.valid_data),
        test_data=samples_hidden(nodes.test_data),
        lr=nodes.lr,
        clusters=hidden(nodes.clusters),
    )


def state_on_device(state: Any) -> Any:
    """A state whose tensors lie on the device."""
    return replace(state, **{f.name: hidden(getattr(state, f.name)) for f in fields(state)})


def state_seen(state: Any) -> dict[str, Tensor]:
    """The fields of a state, to compare them."""
    return {f.name: seen(getattr(state, f.name)) for f in fields(state)}
