"""Shamir's secret sharing of 32 bytes: any `threshold` holders know the secret, fewer know nothing.

The holder with number x has the value at x of a random polynomial over a prime field.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

PRIME = (1 << 521) - 1  # well above any secret
SECRET = 32  # bytes
SHARE = 66  # bytes


class ShareError(ValueError):
    """Shares from which no secret follows."""


def split(secret: bytes, threshold: int, holders: Iterable[int]) -> dict[int, bytes]:
    """A share of the secret for each holder; holders are distinct numbers from 1."""
    numbers = list(holders)
    if len(secret) != SECRET or min(numbers, default=0) < 1 or len(set(numbers)) < len(numbers):
        raise ShareError("a secret of 32 bytes is shared among distinct numbers from 1")
    if not 1 <= threshold <= len(numbers):
        raise ShareError(f"{threshold} of {len(numbers)} holders cannot be required")
    line = [
        int.from_bytes(secret, "big"),
        *(secrets.randbelow(PRIME) for _ in range(threshold - 1)),
    ]
    return {x: _value(line, x).to_bytes(SHARE, "big") for x in numbers}


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret behind at least `threshold` shares, by holder."""
    if len(shares) < threshold:
        raise ShareError(f"{len(shares)} shares, and {threshold} are needed")
    points = sorted(shares.items())[:threshold]
    if any(len(share) != SHARE or int.from_bytes(share, "big") >= PRIME for _, share in points):
        raise ShareError("a malformed share")
    total = sum(_lagrange(x, points) * int.from_bytes(y, "big") for x, y in points) % PRIME
    if total >> (8 * SECRET):
        raise ShareError("the shares do not belong together")
    return total.to_bytes(SECRET, "big")


def _value(line: list[int], x: int) -> int:
    value = 0
    for coefficient in reversed(line):
        value = (value * x + coefficient) % PRIME
    return value


def _lagrange(x: int, points: list[tuple[int, bytes]]) -> int:
    """How much the point at x counts for the value at 0."""
    weight = 1
    for other, _ in points:
        if other != x:
            weight = weight * other * pow(other - x, -1, PRIME) % PRIME
    return weight
