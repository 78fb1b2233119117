"""Numbers as whole numbers modulo 2^32: sums in which no order of adding and no mask shows.

The scale of a sum is public. It follows from how many numbers are added up and from their clip, a
power of two that none of them exceeds: 8, or the next one that the largest of them needs, so that
nothing is ever cut off.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MODULUS = 1 << 32
CLIP = 3  # the exponent of the clip unless somebody needs more: 2^3 = 8
BITS = 30  # of a whole number; with its sign no sum reaches half of the modulus


def exponents(rows: Tensor) -> Tensor:
    """The exponent of the clip that each row [r, ...] needs: int64 [r]; rows must be finite."""
    flat = _flat(rows)
    most = flat.abs().amax(1) if flat.shape[1] else flat.new_zeros(len(rows))
    return torch.frexp(most.double()).exponent.long().clamp(min=CLIP)


def scale_of(terms: Tensor, exponent: Tensor) -> Tensor:
    """Whole numbers to one: float64 powers of two, for sums of so many terms under a clip."""
    doublings = torch.ceil(torch.log2(terms.clamp(min=1).double()))
    return torch.exp2(BITS - doublings - exponent)


def encode(values: Tensor, scale: Tensor | float) -> Tensor:
    """Numbers as the nearest whole numbers of that scale, modulo 2^32: int64 in 0..2^32."""
    return torch.round(values.double() * scale).long() & (MODULUS - 1)


def decode(total: Tensor, scale: Tensor | float) -> Tensor:
    """The sum that whole numbers modulo 2^32 stand for: float64."""
    half = MODULUS // 2
    return ((total + half & (MODULUS - 1)) - half).double() / scale


def lengths(rows: Tensor, apart: Tensor | None) -> list[int]:
    """How many numbers each of the `pieces` of a row has."""
    size = math.prod(rows.shape[1:])
    if apart is None or rows.shape[1:] != apart.shape:
        return [size]
    return [size - int(apart.sum()), int(apart.sum())]


def pieces(rows: Tensor, apart: Tensor | None) -> list[Tensor]:
    """Rows [r, ...] as parts with a clip each: of models [r, P] the columns `apart` [P] are one."""
    if apart is None or rows.shape[1:] != apart.shape:
        return [rows]
    return [rows[:, columns] for columns in _columns(apart, rows.device)]


def joined(parts: list[Tensor], apart: Tensor | None) -> Tensor:
    """The rows whose `pieces` these are."""
    if apart is None or len(parts) == 1:
        return parts[0]
    both = torch.cat(parts, dim=1)
    order = torch.cat(_columns(apart, both.device))
    return torch.empty_like(both).index_copy_(1, order, both)


def _columns(apart: Tensor, device: torch.device) -> list[Tensor]:
    return [torch.nonzero(mask).flatten().to(device) for mask in (~apart, apart)]


def sum_heard(
    rows: Tensor,
    heard: Tensor,
    filled: Tensor,
    weight: Tensor | None,
    apart: Tensor | None = None,
) -> Tensor:
    """For each receiver the sum of what it heard, times `weight` [m, D]: [m, ...].

    `heard` [m, D] are the numbers of its rows [S, ...], where `filled`. NaN where one has diverged.
    """
    broken = ~_flat(rows).isfinite().all(1)
    clean = rows.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    found = joined([_total(part, heard, filled, weight) for part in pieces(clean, apart)], apart)
    shape = (-1, *[1] * (rows.ndim - 1))
    return found.masked_fill((filled & broken[heard]).any(1).view(shape), torch.nan)


def _total(rows: Tensor, heard: Tensor, filled: Tensor, weight: Tensor | None) -> Tensor:
    """The same for finite rows that share a clip."""
    exponent = torch.where(filled, exponents(rows)[heard], CLIP)
    scale = scale_of(filled.sum(1), torch.nn.functional.pad(exponent, (0, 1), value=CLIP).amax(1))
    shape = (-1, *[1] * (rows.ndim - 1))
    total = torch.zeros(len(heard), *rows.shape[1:], dtype=torch.int64, device=rows.device)
    for slot in range(heard.shape[1]):
        part = rows[heard[:, slot]].double()
        if weight is not None:
            part = part * weight[:, slot].double().view(shape)
        total += encode(part, scale.view(shape)) * filled[:, slot].view(shape)
    return decode(total, scale.view(shape)).to(rows.dtype)


def _flat(rows: Tensor) -> Tensor:
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))  # -1 fails where there are no rows
