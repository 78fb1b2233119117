"""A chain of known layers for a fixed number of rows: buffers, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coterie.core.params import Layout
from coterie.core.samples import Pool
from coterie.training.chain import Convolution, Dense, Link
from coterie.training.goals import Goal
from coterie.training.kernels import activation, convolution, dense, samples, update
from coterie.training.optimizers import SGD, Optimizer
from coterie.training.task import Named

PRECISIONS = {"float32": "ieee", "tf32": "tf32", "bf16": "bf16"}
# SGD where the weight gradient is made, instead of in a pass of its own: less memory traffic
STEP_INSIDE = True


class ConvolutionLink:
    """One convolution with its norm, ReLU and pool, for all rows."""

    def __init__(self, link: Convolution, inputs: Tensor, real: int, precision: str) -> None:
        rows, batch, height, width, channels = inputs.shape
        layer, self.link, self.real, self.precision = link.layer, link, real, precision
        filters = convolution.padded(layer.out_channels)
        self.inputs = inputs
        self.shape = convolution.Geometry(
            height,
            width,
            channels,
            filters,
            (layer.kernel_size[0], layer.kernel_size[1]),
            layer.stride[0],
            _padding(layer),
        )
        self.stage = activation.Stage(
            *self.shape.out,
            filters,
            link.norm.num_groups if link.norm else 1,
            link.norm is not None,
            link.relu,
            link.pool,
            link.norm.eps if link.norm else 0.0,
        )
        new = inputs.new_zeros
        by_filter = new(rows, filters, *self.shape.kernel, channels)  # as the forward pass reads
        self.w = by_filter.permute(0, 2, 3, 4, 1)
        self.b = new(rows, filters)
        self.y = new(rows, batch, *self.shape.out, filters)
        self.out = new(rows, batch, *self.stage.out, filters)
        self.gamma = new(rows, filters) if link.norm else None
        self.beta = new(rows, filters) if link.norm else None
        groups = rows * batch * self.stage.groups
        self.stats = (new(groups), new(groups)) if link.norm else None

    def packed(self) -> list[Tensor]:
        """Weight and bias as the kernels store them, and those of the norm."""
        norm = [part for part in (self.gamma, self.beta) if part is not None]
        return [self.w, self.b, *norm]

    def named(self, packed: list[Tensor]) -> dict[str, Tensor]:
        """Views of packed tensors under the module's names and in its shapes."""
        (w, b, *norm), link = packed, self.link
        filters = link.layer.out_channels
        names = (f"{link.norm_name}.weight", f"{link.norm_name}.bias")
        return {
            f"{link.name}.weight": w[..., : self.real, :filters].permute(0, 4, 3, 1, 2),
            f"{link.name}.bias": b[:, :filters],
            **dict(zip(names, norm, strict=False)),
        }

    def forward(self) -> None:
        convolution.forward(self.inputs, self.w, self.b, self.y, self.shape, self.precision)
        activation.forward(self.y, self.gamma, self.beta, self.out, self.stats, self.stage)

    def allow_backward(self) -> None:
        """Make the buffers that only training needs."""
        rows, batch = self.inputs.shape[:2]
        parts = convolution.weight_parts(rows, batch, self.shape)
        new = self.inputs.new_zeros
        self.w = new(self.w.shape)  # as the backward pass reads and writes
        self.dy = torch.zeros_like(self.y)
        self.dw, self.db = new(parts, *self.w.shape), new(parts, *self.b.shape)
        norms = new(rows * batch, self.shape.filters)
        self.dnorm = (norms, torch.zeros_like(norms)) if self.stats else None

    def steps_inside(self) -> bool:
        """Whether one program sees all that a weight's gradient is made of."""
        return len(self.dw) == 1

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: update.Descent | None
    ) -> None:
        activation.backward(
            self.y,
            self.gamma,
            self.beta,
            dout,
            self.stats,
            self.dy,
            self.dnorm,
            self.stage,
        )
        if dinputs is not None:
            convolution.input_gradient(self.dy, self.w, dinputs, self.shape, self.precision)
        if weights and descent:
            own = (self.w, self.b)
            convolution.weight_step(self.inputs, self.dy, own, self.shape, self.precision, descent)
        elif weights:
            convolution.weight_gradient(
                self.inputs, self.dy, self.dw, self.db, self.shape, self.precision
            )

    def gradients(self) -> list[Tensor]:
        """Partial gradients [parts, rows, ...] of what is packed."""
        rows, batch = self.inputs.shape[:2]
        by_sample = [part.view(rows, batch, -1).transpose(0, 1) for part in self.dnorm or ()]
        return [self.dw, self.db, *by_sample]


class DenseLink:
    """One linear layer with its ReLU, for all rows."""

    def __init__(
        self, link: Dense, inputs: Tensor, image: tuple[int, int, int] | None, precision: str
    ) -> None:
        rows, batch, features = inputs.shape
        self.link, self.inputs, self.image, self.precision = link, inputs, image, precision
        self.w = inputs.new_zeros(rows, features, link.layer.out_features)
        self.b = inputs.new_zeros(rows, 1, link.layer.out_features)
        self.out = inputs.new_zeros(rows, batch, link.layer.out_features)

    def packed(self) -> list[Tensor]:
        """Weight and bias as the kernels store them."""
        return [self.w, self.b]

    def named(self, packed: list[Tensor]) -> dict[str, Tensor]:
        """Views of packed tensors under the module's names and in its shapes."""
        (w, b), name = packed, self.link.name
        weight = w.transpose(1, 2)
        if self.image:  # features of the module are (channel, pixel), ours (pixel, channel)
            real, pixels, channels = self.image
            weight = w.view(len(w), pixels, channels, -1)[:, :, :real].permute(0, 3, 2, 1)
        return {f"{name}.weight": weight, f"{name}.bias": b[:, 0]}

    def forward(self) -> None:
        dense.forward(self.inputs, self.w, self.b, self.out, self.link.relu, self.precision)

    def allow_backward(self) -> None:
        """Make the buffers that only training needs."""
        self.dw, self.db = torch.zeros_like(self.w)[None], torch.zeros_like(self.b)[None]

    def steps_inside(self) -> bool:
        """Whether one program sees all that a weight's gradient is made of."""
        return True

    def backward(
        self, dout: Tensor, dinputs: Tensor | None, weights: bool, descent: update.Descent | None
    ) -> None:
        if self.link.relu:
            dout.mul_(self.out > 0)
        if dinputs is not None:
            torch.bmm(dout, self.w.transpose(1, 2), out=dinputs)
        if weights and descent:
            dense.weight_step(self.inputs, dout, (self.w, self.b), self.precision, descent)
        elif weights:
            torch.bmm(self.inputs.transpose(1, 2), dout, out=self.dw[0])
            torch.sum(dout, 1, keepdim=True, out=self.db[0])

    def gradients(self) -> list[Tensor]:
        """Partial gradients [parts, rows, ...] of what is packed."""
        return [self.dw, self.db]


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
        self.scale, self.offset = (part.flatten().float() for part in pool.affine)
        real, height, width = pool.inputs.shape[1:]
        channels = convolution.padded(real)
        self.x = torch.zeros(rows, batch, height, width, channels, device=device)
        self.links: list[ConvolutionLink | DenseLink] = []
        here, image = self.x, None
        for link in chain:
            if isinstance(link, Convolution):
                made = ConvolutionLink(link, here, real, PRECISIONS[precision])
                self.links.append(made)
                here, real = made.out, link.layer.out_channels
                image = (real, here.shape[2] * here.shape[3], here.shape[4])
            else:
                last = DenseLink(link, here.view(rows, batch, -1), image, PRECISIONS[precision])
                self.links.append(last)
                here, image = last.out, None
        self.outputs = here

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
        """Make the buffers that only training needs; only links in `part` will change.

        Where `pulled`, `pull` [rows, P] is added to every gradient, and `spring` times the weights.
        """
        self.optimizer, self.spring = optimizer, spring
        self.changes = [
            any(name in part for name in link.named(link.packed())) for link in self.links
        ]
        self.lowest = self.changes.index(True) if any(self.changes) else len(self.links)
        for link in self.links[self.lowest :]:
            link.allow_backward()
        self.doutputs = torch.zeros_like(self.outputs)
        self.dinputs = [torch.zeros_like(link.inputs) for link in self.links[self.lowest + 1 :]]
        changing = [place for place, changes in enumerate(self.changes) if changes]
        self.memory = {
            (place, slot): optimizer.memory(own)
            for place in changing
            for slot, own in enumerate(self.links[place].packed())
        }
        some = changing if pulled else []
        self.pull = torch.zeros_like(self.flat) if pulled else None
        self.pulls = {p: [torch.zeros_like(own) for own in self.links[p].packed()] for p in some}

    def load_pull(self) -> None:
        """Pack what is added to every gradient."""
        if self.pull is not None:
            flat = self.layout.unflatten(self.pull)
            for place, packed in self.pulls.items():
                _copy(flat, self.links[place].named(packed))

    def step(self, ids: Tensor, lr: Tensor, number: Tensor) -> None:
        """One step of gradient descent of every row on its batch; rows at lr 0 stand still."""
        self.forward(ids)
        self.goal.gradient(self.outputs, self.x, self.pool, ids, self.doutputs)
        dout = self.doutputs
        for place in range(len(self.links) - 1, self.lowest - 1, -1):
            link = self.links[place]
            below = self.dinputs[place - self.lowest - 1] if place > self.lowest else None
            descent = self._descent(place, lr)
            link.backward(dout.view(link.out.shape), below, self.changes[place], descent)
            if below is not None:
                dout = below
        for place in range(self.lowest, len(self.links)):
            if self.changes[place]:
                self._change(place, lr, number)

    def _inside(self, place: int) -> bool:
        """Whether weight and bias of a link take their step where the gradient is made."""
        link, plain = self.links[place], isinstance(self.optimizer, SGD) and self.pull is None
        return STEP_INSIDE and plain and self.changes[place] and link.steps_inside()

    def _descent(self, place: int, lr: Tensor) -> update.Descent | None:
        if not isinstance(self.optimizer, SGD) or not self._inside(place):
            return None
        decay, momentum = self.optimizer.weight_decay, self.optimizer.momentum
        last = (self.memory[place, 0][0], self.memory[place, 1][0]) if momentum else None
        return update.Descent(lr, decay, momentum, last)

    def _change(self, place: int, lr: Tensor, number: Tensor) -> None:
        done = 2 if self._inside(place) else 0  # weight and bias come first
        packed, partials = self.links[place].packed(), self.links[place].gradients()
        for slot in range(done, len(packed)):
            own, partial = packed[slot], partials[slot]
            pull = self.pulls[place][slot] if self.pulls else None
            rate = lr.view(-1, *[1] * (own.ndim - 1))
            if isinstance(self.optimizer, SGD) and not self.optimizer.momentum:
                update.descend(own, partial, lr, self.optimizer.weight_decay + self.spring)
                if pull is not None:
                    own.addcmul_(pull, rate, value=-1)
            else:
                gradient = partial[0] if len(partial) == 1 else partial.sum(0)
                if pull is not None:
                    gradient = gradient + pull + self.spring * own
                self.optimizer.step(own, gradient, self.memory[place, slot], number, rate)

    def forget(self) -> None:
        """Reset the optimizer's memory."""
        for slots in self.memory.values():
            for slot in slots:
                slot.zero_()


def _copy(flat: Named, views: Named) -> None:
    """Fill views of packed tensors with what the module has under their names."""
    for name, packed in views.items():
        packed.copy_(flat[name].view(packed.shape))


def _tensors(values: list[Any]) -> list[Tensor]:
    """All tensors among some values, also within lists and tuples."""
    found = [value for value in values if isinstance(value, Tensor)]
    for value in values:
        if isinstance(value, list | tuple):
            found += _tensors(list(value))
    return found


def _padding(layer: torch.nn.Conv2d) -> tuple[int, int]:
    if isinstance(layer.padding, str):
        same = layer.padding == "same"
        return (layer.kernel_size[0] // 2, layer.kernel_size[1] // 2) if same else (0, 0)
    return layer.padding[0], layer.padding[1]
