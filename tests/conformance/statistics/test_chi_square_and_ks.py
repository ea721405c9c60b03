"""Chi-square, KS, rank p-values and calibration: exact where they promise to be exact."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from conformance.statistics import WrongUse
from conformance.statistics.calibrate import log_calibrated
from conformance.statistics.chi_square import (
    chi_square,
    chi_square_next_given_previous,
    chi_square_two_sample,
    null_statistics,
    pooled_cells,
    rank_p_value,
)
from conformance.statistics.ks import ks_of_bins, ks_of_law, ks_p_value, ks_two_sample


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a loaded machine is no counterexample
@given(st.lists(st.floats(0, 200), min_size=1, max_size=40))
def test_pooled_cells_reach_their_quota(expected):
    expected = np.array(expected)
    cells = pooled_cells(expected, 50)
    assert np.all((cells == -1) == (expected == 0))
    used = cells >= 0
    if used.any():
        totals = np.bincount(cells[used], expected[used])
        assert np.all(totals > 0)
        assert len(totals) == 1 or totals.min() >= 50 * (1 - 1e-12)


def test_chi_square_equals_scipy_without_pooling():
    observed = np.array([60, 80, 110, 150])
    expected = observed.sum() * np.array([0.15, 0.2, 0.3, 0.35])
    ours, theirs = chi_square(observed, expected), stats.chisquare(observed, expected)
    assert ours.statistic == pytest.approx(theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue)


def test_two_sample_equals_scipy_contingency():
    first, second = np.array([120, 230, 310, 90]), np.array([260, 410, 690, 150])
    ours = chi_square_two_sample(first, second)
    theirs = stats.chi2_contingency(np.stack([first, second]), correction=False)
    assert ours.statistic == pytest.approx(theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue)


def test_next_given_previous_adds_rows():
    laws = np.array([[0.5, 0.5], [0.25, 0.75]])
    observed = np.array([[100, 120], [60, 140]])
    each = [chi_square(o, o.sum() * law) for o, law in zip(observed, laws)]
    assert chi_square_next_given_previous(observed, laws) == each[0] + each[1]


def test_rank_p_value_is_exactly_uniform():
    """Every ordering of 1 + 3 exchangeable statistics, with a tie: P(p <= k/4) = k/4."""
    values = [1.0, 2.0, 2.0, 3.0]
    seen = []
    for first in range(4):
        rest = np.array([v for i, v in enumerate(values) if i != first])
        # the tie-break is uniform: take all its outcomes with their weights
        above, equal = int((rest > values[first]).sum()), int((rest == values[first]).sum())
        draws = [rank_p_value(values[first], rest, np.random.default_rng(s)) for s in range(60)]
        assert set(draws) == {(above + g + 1) / 4 for g in range(equal + 1)}
        seen += [((above + g + 1) / 4, 1 / 4 / (equal + 1)) for g in range(equal + 1)]
    for k in range(1, 5):
        assert sum(weight for p, weight in seen if p <= k / 4) == pytest.approx(k / 4)


def test_rank_p_value_takes_rounding_for_a_tie():
    seen = {rank_p_value(0.1 + 0.2, np.array([0.3, 0.5]), np.random.default_rng(s)) for s in range(20)}
    assert seen == {2 / 3, 1.0}


def test_rank_p_value_of_chi_square_is_calibrated_with_tiny_cells():
    law = np.concatenate([np.full(40, 0.0005), [0.98]])
    rng = np.random.default_rng(8)
    runs, n, hits = 2_000, 200, 0
    for _ in range(runs):
        drawn = rng.multinomial(n, law)
        statistic = float(((drawn - n * law) ** 2 / (n * law)).sum())
        hits += rank_p_value(statistic, null_statistics(law, n, 99, rng), rng) <= 0.05
    assert stats.binom.sf(hits - 1, runs, 0.05) > 1e-6
    assert stats.binom.cdf(hits, runs, 0.05) > 1e-6


@pytest.mark.parametrize("tables", [9, 199, 9_999])
def test_calibrated_rank_p_has_mean_at_most_one(tables):
    ranks = np.arange(1, tables + 2) / (tables + 1)
    assert np.mean([math.exp(log_calibrated(float(p))) for p in ranks]) <= 1


def test_calibrator_is_smooth_at_one():
    assert log_calibrated(1.0) == pytest.approx(math.log(0.5), abs=1e-4)
    assert log_calibrated(0.99989) == pytest.approx(log_calibrated(0.99991), abs=1e-4)


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_calibrator_refuses_what_is_no_p_value(p):
    with pytest.raises(WrongUse):
        log_calibrated(p)


def test_ks_bound_holds_exactly_for_small_n():
    """All multisets of 4 PIT values on 4 bins, with their probability, at every threshold."""
    n, bins, outcomes = 4, 4, {}
    for values in product(range(bins), repeat=n):
        distance = ks_of_bins(np.bincount(values, minlength=bins))
        outcomes[distance] = outcomes.get(distance, 0) + bins**-n
    for distance in outcomes:
        tail = sum(weight for d, weight in outcomes.items() if d >= distance - 1e-12)
        assert tail <= ks_p_value(distance, n) + 1e-12


def test_ks_of_law_and_two_sample():
    p = np.array([0.5, 0.3, 0.2])
    counts = np.array([50, 30, 20])
    assert ks_of_law(p, counts) == pytest.approx(0)
    assert ks_of_law(p, np.array([100, 0, 0])) == pytest.approx(0.5)
    distance, p_value = ks_two_sample(np.array([900, 100]), np.array([1_000, 1_000]))
    assert distance == pytest.approx(0.4)
    assert p_value < 1e-10
    assert ks_two_sample(counts, 3 * counts)[1] == 1.0


def test_ks_two_sample_keeps_its_rate():
    rng = np.random.default_rng(0)
    p, hits = np.full(20, 0.05), 0
    for _ in range(1_000):
        hits += ks_two_sample(rng.multinomial(200, p), rng.multinomial(600, p))[1] <= 0.05
    assert stats.binom.sf(hits - 1, 1_000, 0.05) > 1e-6
