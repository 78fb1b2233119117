"""A chain of known layers for a fixed number of rows: buffers, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coterie.core.params import Layout
from coterie.core.samples import Pool
from coterie.training.chain import Dense, Link
from coterie.training.goals import Goal
from coterie.training.kernels import PRECISIONS, convolution, samples, update
from coterie.training.links import LAYERS, Gradient, Layer
from coterie.training.optimizers import SGD, Adam, Optimizer
from coterie.training.task import Named

# SGD where the weight gradient is made, instead of in a pass of its own: less memory traffic
STEP_INSIDE = True


class Network:
    """All links of a chain for some rows and a batch, reading samples of a pool."""

    def __init__(
        self,
        chain: list[Link],
        layout: Layout,
        pool: Pool,
        size: tuple[int, int],
        precision: str,
        goal: Goal,
    ) -> None:
        self.layout, self.pool, self.goal = layout, pool, goal
        rows, batch = size
        device = pool.inputs.device
        self.flat = torch.zeros(rows, layout.size, device=device)
        self.ids = torch.zeros(rows, batch, dtype=torch.int64, device=device)
        real, height, width = samples.plane(pool)
        self.scale, self.offset = torch.ones(real, device=device), torch.zeros(real, device=device)
        if pool.inputs.dtype == torch.uint8:
            self.scale, self.offset = (part.flatten().float() for part in pool.affine)
        channels = convolution.padded(real, 1 if isinstance(chain[0], Dense) else 4)
        self.x = torch.zeros(rows, batch, height, width, channels, device=device)
        self.links: list[Layer] = []
        self.outputs = self.x
        for link in chain:
            made = LAYERS[type(link)](link, self.outputs, real, PRECISIONS[precision])
            self.links.append(made)
            self.outputs, real = made.out, made.real

    def load(self, first: int = 0) -> None:
        """Pack the flat rows into the links from the first one on."""
        flat = self.layout.unflatten(self.flat)
        for link in self.links[first:]:
            _copy(flat, link.named(link.packed()))

    def store(self) -> None:
        """Unpack the links into the flat rows."""
        flat = self.layout.unflatten(self.flat)
        for link in self.links:
            for name, packed in link.named(link.packed()).items():
                flat[name].view(packed.shape).copy_(packed)

    def forward(self, ids: Tensor | None = None) -> None:
        """Outputs for the samples `ids` [rows, batch] (default: the buffer)."""
        ids = self.ids if ids is None else ids
        self.read(ids)
        self.pass_through(0, len(self.links))

    def bytes(self) -> int:
        """Memory of all buffers."""
        held: dict[int, int] = {}
        for owner in (self, *self.links):
            for tensor in _tensors(list(vars(owner).values())):
                held[id(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
        return sum(held.values())

    def read(self, ids: Tensor) -> None:
        """Fill the inputs with samples [rows, batch]."""
        samples.gather(self.pool, ids, self.scale, self.offset, self.x)

    def judge(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and losses of the samples [rows, up to batch] that went through last."""
        seen = slice(0, ids.shape[1])
        outputs = self.outputs[:, seen]
        return outputs, self.goal.losses(outputs, self.x[:, seen], self.pool, ids)

    def pass_through(self, first: int, last: int) -> None:
        """Run the links from `first` to before `last`."""
        for link in self.links[first:last]:
            link.forward()

    def allow_training(
        self, part: set[str], optimizer: Optimizer, pulled: bool = False, spring: float = 0.0
    ) -> None:
        """Make the buffers that only training needs; only what is in `part` will change.

        Where `pulled`, `pull` [rows, P] is added to every gradient, and `spring` times the weights.
        """
        self.optimizer, self.spring = optimizer, spring
        changes = [not part.isdisjoint(link.named(link.packed())) for link in self.links]
        self.lowest = changes.index(True) if any(changes) else len(self.links)
        trained = self.links[self.lowest :]
        for link in trained:
            link.allow_backward()
        self.doutputs = torch.zeros_like(self.outputs)
        self.dinputs = [torch.zeros_like(link.inputs) for link in trained[1:]]
        self.gradients = [_chosen(link, part) for link in trained]
        self.adam = None
        if isinstance(optimizer, Adam):
            self.adam = update.AdamSteps(optimizer, self.flat.device)
        self.pull = torch.zeros_like(self.flat) if pulled else None
        self.pulled = [(link, _zeros(link.packed())) for link in trained if pulled]
        self.pulls = {
            name: pull
            for link, packed in self.pulled
            for name, pull in zip(link.named(packed), packed, strict=True)
        }
        self.inside = [self._inside(gradients) for gradients in self.gradients]
        self.memory = {
            name: optimizer.memory(gradient.own)
            for gradients in self.gradients
            for name, gradient in gradients.items()
        }

    def load_pull(self) -> None:
        """Pack what is added to every gradient."""
        if self.pull is not None:
            flat = self.layout.unflatten(self.pull)
            for link, packed in self.pulled:
                _copy(flat, link.named(packed))

    def step(self, ids: Tensor, lr: Tensor, number: Tensor) -> None:
        """One step of gradient descent of every row on its batch; rows at lr 0 stand still."""
        self.forward(ids)
        self.goal.gradient(self.outputs, self.x, self.pool, ids, self.doutputs)
        if self.adam:
            self.adam.begin()
        dout = self.doutputs
        for place in range(len(self.gradients) - 1, -1, -1):
            link, gradients = self.links[self.lowest + place], self.gradients[place]
            below = self.dinputs[place - 1] if place else None
            descent = self._descent(self.inside[place], lr)
            link.backward(dout.view(link.out.shape), below, bool(gradients), descent)
            self._change(place, lr, number)
            if below is not None:
                dout = below

    def _inside(self, gradients: dict[str, Gradient]) -> list[str]:
        """Weight, or weight and bias, where they take their step as the gradient is made."""
        plain = STEP_INSIDE and isinstance(self.optimizer, SGD) and self.pull is None
        names = [name for name, gradient in gradients.items() if gradient.inside]
        return names if plain and names and names[0].endswith(".weight") else []

    def _descent(self, inside: list[str], lr: Tensor) -> update.Descent | None:
        if not inside or not isinstance(self.optimizer, SGD):
            return None
        decay, momentum = self.optimizer.weight_decay, self.optimizer.momentum
        last = tuple(self.memory[name][0] for name in inside) if momentum else None
        return update.Descent(lr, decay, momentum, last, bias=len(inside) == 2)

    def _change(self, place: int, lr: Tensor, number: Tensor) -> None:
        """Change the weights of a link that did not take their step yet."""
        for name, gradient in self.gradients[place].items():
            if name not in self.inside[place]:
                self._take_step(name, gradient, lr, number)

    def _take_step(self, name: str, gradient: Gradient, lr: Tensor, number: Tensor) -> None:
        own, partial, rule = gradient.own, gradient.partial, self.optimizer
        pull = self.pulls.get(name)
        rate = lr.view(-1, *[1] * (own.ndim - 1))
        if isinstance(rule, SGD) and not rule.momentum:
            update.descend(own, partial, lr, rule.weight_decay + self.spring)
            if pull is not None:
                own.addcmul_(pull, rate, value=-1)
            return
        if pull is not None:
            partial = (partial.sum(0) + pull + self.spring * own)[None]
        if self.adam:
            self.adam.change(own, partial, self.memory[name], lr)
        else:
            total = partial[0] if len(partial) == 1 else partial.sum(0)
            rule.step(own, total, self.memory[name], number, rate)

    def forget(self) -> None:
        """Reset the optimizer's memory."""
        if self.adam:
            self.adam.forget()
        for slots in self.memory.values():
            for slot in slots:
                slot.zero_()


def _copy(flat: Named, views: Named) -> None:
    """Fill views of packed tensors with what the module has under their names."""
    for name, packed in views.items():
        packed.copy_(flat[name].view(packed.shape))


def _zeros(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in tensors]


def _chosen(link: Layer, part: set[str]) -> dict[str, Gradient]:
    """The gradients of the weights of a link that are in the part."""
    named = zip(link.named(link.packed()), link.gradients(), strict=True)
    return {name: gradient for name, gradient in named if name in part}


def _tensors(values: list[Any]) -> list[Tensor]:
    """All tensors among some values, also within lists, tuples and dicts."""
    found = [value for value in values if isinstance(value, Tensor)]
    for value in values:
        if isinstance(value, list | tuple):
            found += _tensors(list(value))
        elif isinstance(value, dict):
            found += _tensors(list(value.values()))
    return found
