"""Pearson's chi-square on tokens, pairs, next-given-previous and PIT bins, at one registered n.

Reports print the textbook p-value. The ledger does not use it: in the far tail it is wrong by orders of magnitude
even with 50 expected in each cell. It uses the rank of the statistic among B null tables of the same n, which is
exact for any cells, and reaches 1 / (B + 1) at the least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from conformance.statistics.evidence import Floats, Ints, WrongUse

LEAST_EXPECTED = 50.0
NULL_TABLES = 9_999


@dataclass(frozen=True)
class ChiSquare:
    """A statistic with its degrees of freedom and textbook p-value."""

    statistic: float
    degrees: int

    @property
    def p(self) -> float:
        """Textbook p-value; for reading, not for deciding far out in the tail."""
        return float(stats.chi2.sf(self.statistic, self.degrees)) if self.degrees > 0 else 1.0

    @property
    def log_p(self) -> float:
        """Natural logarithm of `p`, finite where p underflows."""
        return float(stats.chi2.logsf(self.statistic, self.degrees)) if self.degrees > 0 else 0.0

    def __add__(self, other: ChiSquare) -> ChiSquare:
        """Independent tables: statistics and degrees of freedom add."""
        return ChiSquare(self.statistic + other.statistic, self.degrees + other.degrees)


def pooled_cells(expected: Floats, least: float = LEAST_EXPECTED) -> Ints:
    """Cell number of every token ``[V]``, so that each cell expects at least ``least``; -1 where nothing is expected.

    Tokens are taken from the most to the least expected; what is left over at the end joins the last cell. The cells
    depend on the expected counts only, never on the data.

    >>> pooled_cells(np.array([70.0, 0.0, 30.0, 25.0, 60.0]))
    array([ 0, -1,  2,  2,  1])
    """
    order = np.argsort(-expected, kind="stable")
    falling = expected[order]
    kept = int(np.count_nonzero(falling > 0))
    large = int(np.searchsorted(-falling, -least, side="right"))
    cells = np.full(len(expected), -1, dtype=np.int64)
    cells[order[:large]] = np.arange(large)
    # The small ones fill one cell after another; a cell is closed when it has reached its quota.
    running = np.cumsum(falling[large:kept])
    cell, start, before = large, 0, 0.0
    while start < len(running):
        stop = int(np.searchsorted(running, before + least)) + 1
        if stop > len(running):  # what is left is too little for a cell of its own
            cell = max(cell - 1, 0)
            stop = len(running)
        cells[order[large + start : large + stop]] = cell
        cell, start, before = cell + 1, stop, float(running[stop - 1])
    return cells


def chi_square(observed: Ints, expected: Floats, least: float = LEAST_EXPECTED) -> ChiSquare:
    """Chi-square of counts ``[V]`` against expected counts ``[V]``, pooled to cells that expect at least ``least``.

    Counts where nothing is expected are left out: impossible tokens are a violation of their own.

    >>> chi_square(np.array([60, 40]), np.array([50.0, 50.0]))
    ChiSquare(statistic=4.0, degrees=1)
    """
    if np.shape(observed) != np.shape(expected):
        raise WrongUse(f"observed counts {np.shape(observed)} and expected ones {np.shape(expected)} differ in shape")
    cells = pooled_cells(np.asarray(expected, dtype=np.float64), least)
    used = cells >= 0
    m = int(cells.max(initial=-1)) + 1
    if m < 2:
        return ChiSquare(0.0, 0)
    o = np.bincount(cells[used], observed[used], m)
    e = np.bincount(cells[used], expected[used], m)
    return ChiSquare(float(((o - e) ** 2 / e).sum()), m - 1)


def chi_square_next_given_previous(observed: Ints, laws: Floats, least: float = LEAST_EXPECTED) -> ChiSquare:
    """Next token given the previous one: counts ``[C, V]`` against one law ``[C, V]`` per previous token, added up."""
    result = ChiSquare(0.0, 0)
    for counts, law in zip(observed, laws):
        result = result + chi_square(counts, counts.sum() * law, least)
    return result


def chi_square_two_sample(first: Ints, second: Ints, least: float = LEAST_EXPECTED) -> ChiSquare:
    """Homogeneity of two count vectors ``[V]``: is the second drawn from the law of the first?

    Cells are pooled on the sum of both samples, so that the smaller share of each cell expects ``least``.
    """
    n, m = int(first.sum()), int(second.sum())
    if n == 0 or m == 0:
        return ChiSquare(0.0, 0)
    both = (first + second).astype(np.float64)
    cells = pooled_cells(both * min(n, m) / (n + m), least)
    size = int(cells.max(initial=-1)) + 1
    if size < 2:
        return ChiSquare(0.0, 0)
    used = cells >= 0
    a, b = np.bincount(cells[used], first[used], size), np.bincount(cells[used], second[used], size)
    difference = np.sqrt(m / n) * a - np.sqrt(n / m) * b
    return ChiSquare(float((difference**2 / (a + b)).sum()), size - 1)


def rank_p_value(statistic: float, null_statistics: Floats, rng: np.random.Generator) -> float:
    """Rank of the statistic among null ones drawn from the same law, ties broken at random: exactly uniform.

    >>> rank_p_value(9.0, np.array([1.0, 2.0, 3.0]), np.random.default_rng(0))
    0.25
    """
    # Statistics of equal tables may differ in the last digits, by the order in which they were added up.
    equals = np.isclose(null_statistics, statistic, rtol=1e-9, atol=0.0)
    above, equal = int(((null_statistics > statistic) & ~equals).sum()), int(equals.sum())
    return (above + int(rng.integers(0, equal + 1)) + 1) / (len(null_statistics) + 1)


def null_statistics(law: Floats, n: int, tables: int, rng: np.random.Generator) -> Floats:
    """Chi-square statistics ``[tables]`` of multinomial tables with ``n`` draws from ``law [m]``.

    Draw them once per run, at the registered n, and with the judge's own generator.
    """
    expected = n * law
    out = np.empty(tables)
    step = max(1, int(4e6) // len(law))
    for start in range(0, tables, step):
        size = min(step, tables - start)
        drawn = rng.multinomial(n, law, size=size)
        out[start : start + size] = ((drawn - expected) ** 2 / expected).sum(axis=1)
    return out
