"""Tests that people use, as the power tables put beside ours. Each returns a log p-value from counts ``[V]``."""

from __future__ import annotations

import numpy as np
from scipy import stats

from conformance.statistics.chi_square import chi_square
from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.ks import ks_of_law


def log_p_chi_square(counts: Ints, p: Floats) -> float:
    """Chi-square pooled to cells that expect at least 50, textbook p-value."""
    possible = p > 0
    if counts[~possible].any():
        return -np.inf
    return chi_square(counts, counts.sum() * p).log_p


def log_p_ks(counts: Ints, p: Floats) -> float:
    """Kolmogorov-Smirnov in the order of token id, by the DKWM bound."""
    distance = ks_of_law(p, counts)
    return min(0.0, float(np.log(2) - 2 * counts.sum() * distance**2))


def log_p_mmd_hamming(counts: Ints, p: Floats, rng: np.random.Generator) -> float:
    """Two-sample MMD with the Hamming kernel on single tokens (the kernel of the PyPI package model-equality-testing).

    With one token per sample the statistic is the squared distance of two empirical laws. A permutation test cannot
    reach 1e-6, so its null is taken from three exact moments (Hall, Buckley and Eagleson), which flatters it.
    The second sample is as large as the first and drawn from p.
    """
    n = int(counts.sum())
    other = rng.multinomial(n, p)
    statistic = float(((counts - other.astype(np.float64)) ** 2).sum() / (2 * n))
    p2, p3, p4 = ((p**power).sum() for power in (2, 3, 4))
    mean = 1 - p2
    variance = 2 * (p2 - 2 * p3 + p2**2)
    third = 8 * (p3 - 3 * p4 + 3 * p2 * p3 - p2**3)
    degrees = 8 * variance**3 / third**2
    return float(stats.chi2.logsf(degrees + (statistic - mean) * np.sqrt(2 * degrees / variance), degrees))


def l2_ratio_passes(p: Floats, r: Floats, rng: np.random.Generator) -> bool:
    """The heuristic of vLLM's rejection-sampler test: does the distance to p shrink faster than to random laws?

    Distances of the empirical law (10 to 100,000 samples, twice each) to p and to 100 random laws; it passes where the
    first shrinks more than 20 times as much as the second. It has no error rate.
    """
    V = len(p)
    random_laws = np.exp(rng.random((100, V)))
    random_laws /= random_laws.sum(axis=1, keepdims=True)
    to_target, to_random = [], []
    for n in (10, 100_000):
        seen = rng.multinomial(2 * n, r) / (2 * n)
        to_target.append(float(np.linalg.norm(p - seen)))
        to_random.append(float(np.sqrt(((random_laws - seen) ** 2).sum()) / 100))
    return to_target[0] / to_target[1] > 20 * to_random[0] / to_random[1]
