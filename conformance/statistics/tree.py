"""Bets on the shape of a PIT that is uniform under a correct engine: a sparse Polya tree, and bets on the two tails.

The unit interval is cut into 32 equal cells, and the two outermost cells again and again in halves, down to 2^-30:
a fault that touches only very rare tokens lives there. All that is kept is the number of PIT values in each leaf.

*Polya tree.* Every halving is a coin with heads 1/2 under a correct engine. At each one the tree bets a share w of its
wealth on a Beta(a, a) coin (mixed over a) and keeps the rest; wealth multiplies over the halvings, because each is
conditional on the one above; the result is mixed over w. Small w serves faults in one place, large w faults everywhere.

*Tails.* A bet that the outermost 2^-d receives a share 2^-j instead, for all d and j: where a handful of tokens lands
at places of probability 1e-4, the tree pays for every halving on the way, these bets pay once. Beside them, bets that the
outermost 2^-d loses a part of its share: what truncation does to the tokens that it drops.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, logsumexp

from conformance.statistics.evidence import Floats, Ints

CELLS = 32
DEPTH = 30

_TAIL = np.concatenate([[0.0], 0.5 ** np.arange(DEPTH, 4, -1)])
EDGES: Floats = np.concatenate([_TAIL, np.arange(2, CELLS - 1) / CELLS, (1 - _TAIL)[::-1]])
"""Edges of the leaves, from 0 to 1."""
LEAVES = len(EDGES) - 1

CONCENTRATIONS = np.geomspace(0.5, 5e5, 7)
SHARES = np.array([0.02, 0.1, 0.4])


def leaf_counts(values: Floats) -> Ints:
    """Counts ``[orders, LEAVES]`` of PIT values ``[orders, n]`` in [0, 1).

    >>> counts = leaf_counts(np.array([[0.0, 0.5, 1 - 1e-12]]))
    >>> counts[0, 0], counts[0, -1], counts.sum()
    (np.int64(1), np.int64(1), np.int64(3))
    """
    leaf = np.searchsorted(EDGES, values, side="right") - 1
    return np.stack([np.bincount(row, minlength=LEAVES) for row in leaf])


def log_tree(counts: Ints) -> Floats:
    """Log e-values ``[...]`` of the sparse Polya tree for leaf counts ``[..., LEAVES]``.

    >>> abs(log_tree(np.zeros(LEAVES, int))) < 1e-12
    np.True_
    """
    left = (_upto(counts, 1) - _upto(counts, 0))[..., None]
    right = (_upto(counts, 2) - _upto(counts, 1))[..., None]
    a = CONCENTRATIONS
    coin = betaln(a + left, a + right) - betaln(a, a) + (left + right) * np.log(2)
    each = logsumexp(coin, axis=-1)[..., None] - np.log(len(a))
    wealth = np.logaddexp(np.log1p(-SHARES), np.log(SHARES) + each).sum(axis=-2)
    result: Floats = logsumexp(wealth, axis=-1) - np.log(len(SHARES))
    return result


def log_tails(counts: Ints) -> Floats:
    """Log e-values ``[...]`` of the bets on the two tails for leaf counts ``[..., LEAVES]``.

    >>> abs(log_tails(np.zeros(LEAVES, int))) < 1e-12
    np.True_
    """
    upto = np.concatenate([np.zeros((*counts.shape[:-1], 1), np.int64), np.cumsum(counts, axis=-1)], axis=-1)
    n = upto[..., -1:]
    kinds = []
    for leaves, inside, outside in (_HEAVIER, _LIGHTER):
        tails = np.concatenate([upto[..., leaves], n - upto[..., LEAVES - leaves]], axis=-1)
        wealth = tails * np.tile(inside, 2) + (n - tails) * np.tile(outside, 2)
        kinds.append(logsumexp(wealth, axis=-1) - np.log(wealth.shape[-1]))
    result: Floats = np.logaddexp(*kinds) - np.log(2)
    return result


def log_shape(counts: Ints) -> Floats:
    """Log of the mean of the two e-values."""
    mean: Floats = np.logaddexp(log_tree(counts), log_tails(counts)) - np.log(2)
    return mean


def _upto(counts: Ints, which: int) -> Ints:
    """Counts before the first leaf, the middle or the end (0, 1, 2) of every halving, ``[..., halvings]``."""
    before: Ints = np.concatenate([np.zeros((*counts.shape[:-1], 1), np.int64), np.cumsum(counts, axis=-1)], axis=-1)
    return before[..., _HALVINGS[:, which]]


def _halvings() -> Ints:
    """Every halving of a dyadic interval that is cut further: (first leaf, first leaf of the right half, end)."""
    found: list[tuple[int, int, int]] = []
    open_intervals = [(0.0, 1.0)]
    while open_intervals:
        low, high = open_intervals.pop()
        first, middle, end = np.searchsorted(EDGES, [low, (low + high) / 2, high])
        if end - first > 1:
            found.append((int(first), int(middle), int(end)))
            open_intervals += [(low, (low + high) / 2), ((low + high) / 2, high)]
    return np.array(found)


_HALVINGS = _halvings()


def _tail_bets(masses: Floats, shares: Floats) -> tuple[Ints, Floats, Floats]:
    """Bets that the outermost `masses` receive `shares`: their leaves, and the logarithms of the factors inside and outside."""
    return np.searchsorted(EDGES, masses), np.log(shares / masses), np.log1p(-shares) - np.log1p(-masses)


# Heavier: mass 2^-d under a correct engine, 2^-j claimed, at least four times as much. Lighter: a part is lost.
_DEPTHS = np.array([(d, j) for d in range(5, DEPTH + 1) for j in range(1, 15) if d - j >= 2])
_HEAVIER = _tail_bets(0.5 ** _DEPTHS[:, 0], 0.5 ** _DEPTHS[:, 1])
_MASSES = np.repeat(0.5 ** np.arange(2, 9), 5)
_LIGHTER = _tail_bets(_MASSES, _MASSES * np.tile([0.02, 0.2, 0.5, 0.8, 0.95], 7))
