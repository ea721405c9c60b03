"""Kolmogorov-Smirnov on the randomised PIT, by the bound of Dvoretzky, Kiefer, Wolfowitz and Massart.

``P(sup |F_n - F| >= D) <= 2 exp(-2 n D^2)`` holds for every n, not only in the limit, and also when the PIT is known
on a grid only (the largest difference on a grid is at most the largest difference).
"""

from __future__ import annotations

import math

import numpy as np

from conformance.statistics.evidence import Floats, Ints


def ks_of_bins(counts: Ints) -> float:
    """Largest difference between the PIT's distribution function and the diagonal, at the edges of equal bins.

    >>> ks_of_bins(np.array([10, 0]))
    0.5
    """
    n = int(counts.sum())
    if n == 0:
        return 0.0
    grid = np.arange(1, len(counts) + 1) / len(counts)
    return float(np.abs(np.cumsum(counts) / n - grid).max())


def ks_of_law(p: Floats, counts: Ints, order: Ints | None = None) -> float:
    """Largest difference between the empirical and the target's distribution function along ``order`` of the tokens."""
    difference = counts / max(int(counts.sum()), 1) - p
    return float(np.abs(np.cumsum(difference if order is None else difference[order])).max())


def ks_two_sample(first: Ints, second: Ints) -> tuple[float, float]:
    """Distance between two count vectors in token order and its p-value, valid at every n (union of two DKWM bounds).

    Each empirical law lies within its own DKWM band of the common law, so a distance of d needs one of them to be off
    by its share of d; the shares are chosen in proportion to 1/sqrt(n).
    """
    n, m = int(first.sum()), int(second.sum())
    distance = float(np.abs(np.cumsum(first / max(n, 1) - second / max(m, 1))).max())
    share = math.sqrt(m) / (math.sqrt(n) + math.sqrt(m)) if n and m else 0.5
    return distance, min(1.0, 4 * math.exp(-2 * n * (share * distance) ** 2))


def ks_p_value(distance: float, n: int) -> float:
    """The DKWM p-value ``min(1, 2 exp(-2 n D^2))``.

    >>> round(ks_p_value(0.01, 100_000), 12)
    4.122e-09
    """
    return min(1.0, 2 * math.exp(-2 * n * distance**2))


def ks_distance_needed(n: int, false_fail_rate: float) -> float:
    """The distance at which `ks_p_value` equals ``false_fail_rate``."""
    return math.sqrt(math.log(2 / false_fail_rate) / (2 * n))
