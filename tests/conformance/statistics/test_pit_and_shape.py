"""The PIT is exactly uniform, its bins from counts follow the same law, and the bets on its shape are fair."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest
from scipy.stats import binom
from statistics_laws import degenerate_laws, draw, random_laws

from conformance.statistics.fixed_laws import Spread
from conformance.statistics.pit import ORDERS, pit
from conformance.statistics.rows import Rows
from conformance.statistics.tree import EDGES, LEAVES, leaf_counts, log_tails, log_tree


def nearly_tied_laws():
    """Ratios q/p that tie up to rounding: p = q computed in two ways, and the law of accepted tokens."""
    p, q = random_laws(30, 6, 5)
    kept = np.minimum(p, q)
    weights = kept / kept.sum(axis=1, keepdims=True)
    same = (p / 3) / (p / 3).sum(axis=1, keepdims=True)
    return np.concatenate([weights, same]), np.concatenate([q, p])


@pytest.mark.parametrize(
    "laws", [random_laws(30, 6, 1), random_laws(30, 6, 2, zeros=0.4), degenerate_laws(), nearly_tied_laws()]
)
def test_token_intervals_tile_the_unit_interval(laws):
    """Per row and order, the intervals of tokens of positive p cover [0, 1): length p each, ties sharing theirs."""
    p, q = laws
    V = p.shape[1]
    rows = Rows(np.repeat(p, V, axis=0), np.repeat(q, V, axis=0))
    tokens = np.tile(np.arange(V), len(p))
    low = pit(rows, tokens, np.zeros((len(ORDERS), len(tokens))))
    high = pit(rows, tokens, np.full((len(ORDERS), len(tokens)), 1.0))
    for order, row in product(range(len(ORDERS)), range(len(p))):
        part = slice(row * V, (row + 1) * V)
        positive = p[row] > 0
        ends = sorted(set(zip(low[order, part][positive].round(12), high[order, part][positive].round(12))))
        assert ends[0][0] == 0
        assert ends[-1][1] == pytest.approx(1)
        assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(ends))


def test_pit_of_a_varied_stream_is_uniform():
    p, q = random_laws(200_000, 8, 3, zeros=0.2)
    rng = np.random.default_rng(1)
    values = pit(Rows(p, q), draw(p, rng), rng.random((len(ORDERS), len(p))))
    counts = np.stack([np.bincount((row * 16).astype(int), minlength=16) for row in values])
    # 80 cells, each within 6 standard deviations: a false alarm once in 1e7 runs
    assert np.abs(counts / len(p) - 1 / 16).max() < 6 * np.sqrt(1 / 16 / len(p))


def test_counts_spread_over_the_interval_of_their_token():
    p, q = random_laws(1, 5, 4)
    rng = np.random.default_rng(2)
    for scores in (p[0], q[0] / p[0], -np.arange(5.0)):
        counts = (1e6 * p[0]).astype(int)
        bins = Spread(scores, p[0], np.linspace(0, 1, 11))(counts, rng)
        assert bins.sum() == counts.sum()
        assert np.abs(bins / counts.sum() - 0.1).max() < 6 * np.sqrt(0.1 / 1e6)


def test_spread_of_counts_and_pit_of_tokens_agree_where_nothing_is_random():
    p = np.full(8, 1 / 8)
    tokens = np.array([0, 0, 3, 7, 7, 7])
    stream = pit(Rows(np.tile(p, (6, 1)), np.tile(p, (6, 1))), tokens, np.full((2, 6), 0.5))[0]
    spread = Spread(-np.arange(8.0), p, np.linspace(0, 1, 9))
    counts = spread(np.bincount(tokens, minlength=8), np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount((stream * 8).astype(int), minlength=8), counts)


def test_leaves_cover_the_unit_interval():
    assert EDGES[0] == 0
    assert EDGES[-1] == 1
    assert np.all(np.diff(EDGES) > 0)
    values = np.random.default_rng(0).random((1, 1000))
    np.testing.assert_array_equal(leaf_counts(values)[0], np.histogram(values[0], EDGES)[0])


def test_one_value_has_mean_one():
    """One value: every leaf with its mass."""
    masses = np.diff(EDGES)
    for log_e in (log_tree, log_tails):
        mean = sum(m * np.exp(log_e(np.bincount([i], minlength=LEAVES))) for i, m in enumerate(masses))
        assert mean == pytest.approx(1, abs=1e-8)  # betaln at 1e6 keeps nine digits


def test_two_values_have_mean_one():
    masses = np.diff(EDGES)
    for log_e in (log_tree, log_tails):
        mean = 0.0
        for i, j in combinations_with_replacement(range(LEAVES), 2):
            ways = 1 if i == j else 2
            mean += ways * masses[i] * masses[j] * np.exp(log_e(np.bincount([i, j], minlength=LEAVES)))
        assert mean == pytest.approx(1, abs=1e-8)


def test_null_alarm_rate_of_shape_bets():
    rng = np.random.default_rng(5)
    runs, alarms = 500, 0
    for _ in range(runs):
        counts = np.zeros(LEAVES, int)
        for n in (50, 500, 3_000):
            counts = counts + rng.multinomial(n, np.diff(EDGES))
            if max(log_tree(counts), log_tails(counts)) >= np.log(200):  # mean of the two at 1/100
                alarms += 1
                break
    assert binom.sf(alarms - 1, runs, 0.01) > 1e-6
