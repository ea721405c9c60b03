"""Laws on which the judge's statistics are proven: random ones, and every degenerate kind."""

from __future__ import annotations

import numpy as np

from conformance.statistics.evidence import Floats


def random_laws(n: int, V: int, seed: int, zeros: float = 0.0) -> tuple[Floats, Floats]:
    """``n`` rows of p and q, ``[n, V]`` each, a share ``zeros`` of their entries being 0."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(2):
        weights = np.exp(1.5 * rng.normal(size=(n, V))) * (rng.random((n, V)) >= zeros)
        weights[np.arange(n), rng.integers(0, V, n)] += 0.1
        tables.append(weights / weights.sum(axis=1, keepdims=True))
    return tables[0], tables[1]


def degenerate_laws() -> tuple[Floats, Floats]:
    """Rows with p = q, disjoint supports, one-hot laws, ties and zeros; V = 4."""
    p = [
        [0.1, 0.6, 0.25, 0.05],
        [0.25, 0.25, 0.25, 0.25],
        [0.5, 0.5, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
        [0.5, 0.25, 0.25, 0.0],
        [0.25, 0.25, 0.25, 0.25],
    ]
    q = [
        [0.1, 0.6, 0.25, 0.05],
        [0.25, 0.25, 0.25, 0.25],
        [0.0, 0.0, 0.5, 0.5],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
        [0.25, 0.25, 0.25, 0.25],
        [0.5, 0.25, 0.25, 0.0],
    ]
    return np.array(p), np.array(q)


def draw(laws: Floats, rng: np.random.Generator) -> np.ndarray:
    """One token per row."""
    below = (np.cumsum(laws, axis=1) < rng.random((len(laws), 1))).sum(axis=1)
    return np.minimum(below, laws.shape[1] - 1)
