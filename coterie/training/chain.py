"""A module as a chain of known layers: what the kernels can run, or why they cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn


@dataclass(frozen=True)
class Convolution:
    """A convolution of images."""

    name: str
    layer: nn.Conv2d

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters."""
        return _names(self.name, self.layer)


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution of images."""

    name: str
    layer: nn.ConvTranspose2d

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters."""
        return _names(self.name, self.layer)


@dataclass(frozen=True)
class Stage:
    """One pass over images: norm, activation and pool, each if there is one, in this order."""

    name: str = ""  # of the norm
    norm: nn.GroupNorm | None = None
    activation: str = ""  # "relu" or "sigmoid"
    pool: str = ""  # "max" or "mean" of 2x2 pixels

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters."""
        return _names(self.name, self.norm) if self.norm else ()


@dataclass(frozen=True)
class Enlarge:
    """Every pixel several times, downwards and across."""

    factor: tuple[int, int]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Average:
    """The mean of all pixels: images of one pixel."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dense:
    """A linear layer of flat features and its activation."""

    name: str
    layer: nn.Linear
    activation: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Its parameters."""
        return _names(self.name, self.layer)


Link = Convolution | Transposed | Stage | Enlarge | Average | Dense


class Unknown(Exception):
    """The module is not a chain of known layers; the message says which layer."""


@dataclass(frozen=True)
class _Chain:
    """The links so far, and the form in which the next layer gets what they give."""

    links: tuple[Link, ...]
    form: str  # "images", "flat", or "planes": flat features that only look like images

    @property
    def last(self) -> Link | None:
        return self.links[-1] if self.links else None

    def add(self, link: Link, form: str = "images") -> _Chain:
        return _Chain((*self.links, link), form)

    def change(self, link: Link) -> _Chain:
        """The chain with another last link."""
        return _Chain((*self.links[:-1], link), self.form)


def chain_of(module: nn.Module, sample_shape: Sequence[int], images: bool = False) -> list[Link]:
    """The links of a module, first to last; with `images` it must give samples like its own."""
    if len(sample_shape) not in (1, 3):
        raise Unknown(f"samples of shape {tuple(sample_shape)} are neither images nor rows")
    chain = _Chain((), "images" if len(sample_shape) == 3 else "flat")
    for name, layer in _leaves(module):
        chain = _extend(chain, name, layer)
    if images:
        _check_outputs(module, sample_shape)
    elif not isinstance(chain.last, Dense) or chain.form != "flat":
        raise Unknown("the last layer is not linear")
    _check_names(module, chain.links)
    return list(chain.links)


def _check_outputs(module: nn.Module, sample_shape: Sequence[int]) -> None:
    with torch.no_grad():
        given = tuple(module(torch.zeros(1, *sample_shape)).shape[1:])
    if given != tuple(sample_shape):
        raise Unknown(f"outputs are {given}, not {tuple(sample_shape)} as the samples")


def _check_names(module: nn.Module, links: Sequence[Link]) -> None:
    """Every parameter must belong to one link, and every link to the module's parameters."""
    used = Counter(name for link in links for name in link.names)
    own = Counter(name for name, _ in module.named_parameters())
    if not links or used != own:
        strange = sorted((used - own) + (own - used))
        raise Unknown(f"parameters that layers share, or that none has: {strange}")


def _leaves(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of nested sequences in the order of their use; one may occur several times."""
    if type(module).forward is not nn.Sequential.forward:
        raise Unknown(f"{type(module).__name__} is not an nn.Sequential")
    found: list[tuple[str, nn.Module]] = []
    for name, child in module._modules.items():  # `named_children` leaves out repetitions
        if isinstance(child, nn.Sequential):
            found += [(f"{name}.{inner}", leaf) for inner, leaf in _leaves(child)]
        elif child is not None:
            found.append((name, child))
    return found


def _extend(chain: _Chain, name: str, layer: nn.Module) -> _Chain:
    """The chain with one more layer."""
    rule = RULES.get(type(layer))  # not of a base class: a subclass may do something else
    if rule is None:
        raise Unknown(f"no kernel for layer {name!r} ({type(layer).__name__})")
    longer = rule(chain, name, layer)
    if longer is None:
        kind = type(layer).__name__
        raise Unknown(f"no kernel for layer {name!r} ({kind}) with these options at this place")
    return longer


def _names(name: str, layer: nn.Module) -> tuple[str, ...]:
    return tuple(f"{name}.{own}" for own in ("weight", "bias") if getattr(layer, own) is not None)


def _convolution(chain: _Chain, name: str, layer: nn.Conv2d | nn.ConvTranspose2d) -> _Chain | None:
    square = layer.stride[0] == layer.stride[1] and layer.dilation == (1, 1)
    plain = square and layer.groups == 1 and layer.padding_mode == "zeros"
    if not plain or chain.form != "images":
        return None
    if isinstance(layer, nn.ConvTranspose2d):
        return chain.add(Transposed(name, layer))
    return chain.add(Convolution(name, layer))


def _dense(chain: _Chain, name: str, layer: nn.Linear) -> _Chain | None:
    return chain.add(Dense(name, layer), "flat") if chain.form == "flat" else None


def _norm(chain: _Chain, name: str, layer: nn.GroupNorm) -> _Chain | None:
    fits = layer.affine and chain.form == "images"
    return chain.add(Stage(name, layer)) if fits else None


def _activation(chain: _Chain, name: str, layer: nn.Module) -> _Chain | None:
    kind, last = ACTIVATIONS[type(layer)], chain.last
    if isinstance(last, Dense):
        return None if last.activation else chain.change(replace(last, activation=kind))
    if isinstance(last, Stage) and not (last.activation or last.pool):
        return chain.change(replace(last, activation=kind))
    # values one by one: images that were flattened meanwhile are still stored as images
    fits = last is not None or chain.form == "images"
    return chain.add(Stage(activation=kind), chain.form) if fits else None


def _pool(chain: _Chain, name: str, layer: nn.MaxPool2d | nn.AvgPool2d) -> _Chain | None:
    """A pool of 2x2 pixels that leaves half of each side."""
    if isinstance(layer, nn.MaxPool2d):
        plain = layer.dilation in (1, (1, 1)) and not layer.return_indices
    else:
        plain = layer.divisor_override is None
    square = layer.kernel_size in (2, (2, 2)) and layer.stride in (2, (2, 2))
    halves = square and layer.padding in (0, (0, 0)) and not layer.ceil_mode
    if not plain or not halves or chain.form != "images":
        return None
    kind = "max" if isinstance(layer, nn.MaxPool2d) else "mean"
    if isinstance(chain.last, Stage) and not chain.last.pool:
        return chain.change(replace(chain.last, pool=kind))
    return chain.add(Stage(pool=kind))


def _average(chain: _Chain, name: str, layer: nn.AdaptiveAvgPool2d) -> _Chain | None:
    fits = layer.output_size in (1, (1, 1)) and chain.form == "images"
    return chain.add(Average()) if fits else None


def _enlarge(chain: _Chain, name: str, layer: nn.Upsample) -> _Chain | None:
    given = layer.scale_factor
    factors = given if isinstance(given, tuple) else (given, given)
    down, across = (int(factor or 0) for factor in factors)
    whole = (down, across) == factors and min(down, across) > 0
    fits = whole and layer.mode == "nearest" and chain.form == "images"
    return chain.add(Enlarge((down, across))) if fits else None


def _flatten(chain: _Chain, name: str, layer: nn.Flatten) -> _Chain | None:
    whole = layer.start_dim == 1 and layer.end_dim == -1
    return replace(chain, form="flat") if whole else None


def _unflatten(chain: _Chain, name: str, layer: nn.Unflatten) -> _Chain | None:
    fits = layer.dim == 1 and isinstance(chain.last, Dense) and chain.form == "flat"
    return replace(chain, form="planes") if fits else None


def _nothing(chain: _Chain, name: str, layer: nn.Module) -> _Chain | None:
    return None if getattr(layer, "p", 0) else chain  # a dropout of nothing


ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Sigmoid: "sigmoid"}
RULES: dict[type[nn.Module], Callable[..., _Chain | None]] = {
    nn.Conv2d: _convolution,
    nn.ConvTranspose2d: _convolution,
    nn.Linear: _dense,
    nn.GroupNorm: _norm,
    **dict.fromkeys(ACTIVATIONS, _activation),
    nn.MaxPool2d: _pool,
    nn.AvgPool2d: _pool,
    nn.AdaptiveAvgPool2d: _average,
    nn.Upsample: _enlarge,
    nn.UpsamplingNearest2d: _enlarge,
    nn.Flatten: _flatten,
    nn.Unflatten: _unflatten,
    nn.Identity: _nothing,
    nn.Dropout: _nothing,
    nn.Dropout2d: _nothing,
}
