"""Keyed randomness as arrays: a draw is a function of seed, purpose and node."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import gammaincinv, ndtri

from coterie.core.draws import draw, shuffle, uniform
from coterie.errors import InputError


def order(count: int, seed: int, purpose: str, node: int = 0) -> np.ndarray:
    """A random order of range(count): int64 [count]."""
    return np.asarray(shuffle(draw(seed, purpose, 0, node, count)).numpy())


def uniforms(
    count: int, seed: int, purpose: str, node: int | np.ndarray = 0, t: int = 0
) -> np.ndarray:
    """Numbers in the open interval (0, 1): float64 [..., count], with [...] the shape of `node`."""
    return np.asarray(uniform(draw(seed, purpose, t, torch.as_tensor(node), count)).numpy())


def normals(count: int, seed: int, purpose: str, node: int | np.ndarray = 0) -> np.ndarray:
    """Standard normal numbers, by the inverse of their distribution: float64 [..., count]."""
    return np.asarray(ndtri(uniforms(count, seed, purpose, node)))


def log_gammas(
    alpha: float, count: int, seed: int, purpose: str, node: int = 0, t: int = 0
) -> np.ndarray:
    """Logarithms of Gamma(alpha) numbers, which for a small alpha are too small to be floats."""
    both = uniforms(2 * count, seed, purpose, node, t)
    # Gamma(alpha) = Gamma(alpha + 1) * U ** (1 / alpha)
    return np.asarray(np.log(gammaincinv(alpha + 1, both[:count])) + np.log(both[count:]) / alpha)


def proportions(logs: np.ndarray) -> np.ndarray:
    """Shares that sum to one from logarithms: Dirichlet's, when those are of Gamma numbers."""
    shares = np.exp(logs - logs.max())
    return np.asarray(shares / shares.sum())


def held_out(count: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Train and test indices of `count` samples, in random order; the test part is rounded up."""
    if not 0 < fraction < 1:
        raise InputError(f"test_fraction must be between 0 and 1, got {fraction:g}")
    indices = order(count, seed, "data/held-out")
    tests = int(np.ceil(count * fraction))
    return indices[tests:], indices[:tests]
