"""Single checks as trios: decide, say what a pass is worth, say what it costs.

``assert_*`` raises AssertionError if the data prove a fault, where a correct engine fails with probability at most
``false_fail_rate``, and returns the evidence else. ``smallest_detectable_*`` is the smallest fault that ``n`` samples
miss with probability at most ``false_pass_rate``; ``samples_needed_*`` turns the same bound around. (The form is that of
TensorFlow Probability's statistical_testing.) A run of several checks has one verdict through the ledger instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from conformance.statistics.bank import FaultBank, token_counts
from conformance.statistics.bounds import markov_samples, smallest_caught
from conformance.statistics.chi_square import (
    chi_square,
    chi_square_two_sample,
    null_statistics,
    pooled_cells,
    rank_p_value,
)
from conformance.statistics.dependence import STAKES, log_wealth_of_products
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse, false_alarm_rate, law_rows, log_mean_exp
from conformance.statistics.fixed_laws import FixedLaws
from conformance.statistics.ks import ks_of_law, ks_p_value, ks_two_sample
from conformance.statistics.planning import BetTable, Threshold
from conformance.statistics.tree import log_shape

BANK_SHARE = 0.8
SMALLEST_RATE_BY_RANK = 1e-4
GRID = 64


def assert_follows_law(counts: Ints, p: Floats, q: Floats | None, false_fail_rate: float, rng: np.random.Generator) -> float:
    """Fault bank (weight .8) and omnibus (.2) on samples of one fixed law, as counts ``[V]``; returns log10 E.

    Valid at any number of looks at growing counts with fresh splits; ``rng`` is the judge's own.
    """
    bank = FaultBank(has_q=q is not None)
    laws = FixedLaws(bank, p, q)
    counts = token_counts(counts, len(laws.p))
    if counts[laws.p == 0].any():
        raise AssertionError(f"{int(counts[laws.p == 0].sum())} samples have probability 0 under p")
    found = bank.evidence(laws.log_table @ counts, int(counts.sum()))
    shapes = log_mean_exp(np.array([float(log_shape(spread(counts, rng))) for spread in laws.leaves]))
    log_e = log_mean_exp(np.array([found.log_e, shapes]), np.array([BANK_SHARE, 1 - BANK_SHARE]))
    _fail(Evidence("law", found.n, log_e, holder=found.holder), false_fail_rate)
    return log_e / math.log(10)


def samples_needed_to_follow_law(
    fault: Floats, p: Floats, q: Floats | None, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Samples after which `assert_follows_law` misses the law ``fault [V]`` at most that often; inf if no bet sees it."""
    table = BetTable(FaultBank(has_q=q is not None), p[None], None if q is None else q[None])
    planned = table.samples_needed(fault[None], Threshold(false_fail_rate, BANK_SHARE), false_pass_rate)
    return math.inf if planned is None else planned.tokens


def smallest_detectable_against_law(
    ray: Callable[[float], Floats], n: int, p: Floats, q: Floats | None, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Smallest size on a ray of laws (size -> ``[V]``) that ``n`` samples miss at most that often; inf if none is caught."""
    table = BetTable(FaultBank(has_q=q is not None), p[None], None if q is None else q[None])
    threshold = Threshold(false_fail_rate, BANK_SHARE)
    size = table.smallest_detectable(lambda s: ray(s)[None], n, threshold, false_pass_rate)
    return math.inf if size is None else size


def assert_chi_square(counts: Ints, p: Floats, false_fail_rate: float, rng: np.random.Generator) -> float:
    """Chi-square at one n fixed in advance, by its rank among null tables; returns the exact p-value.

    Rates below 1e-4 are refused: they would take more null tables than they are worth (use `assert_follows_law`).
    """
    counts = token_counts(counts, len(p))
    n = int(counts.sum())
    law = _pooled(p, n)
    found = chi_square(counts, n * p)
    return _by_rank(found.statistic, null_statistics(law, n, _tables(false_fail_rate), rng), false_fail_rate, rng)


def samples_needed_by_chi_square(tv: float, cells: int, false_fail_rate: float, false_pass_rate: float) -> float:
    """Samples after which a law at total variation ``tv`` on ``cells`` cells is missed at most that often.

    The noncentrality is at least 4 n TV^2 against every alternative on those cells.

    >>> round(samples_needed_by_chi_square(0.01, 64, 1e-6, 1e-3) / 3.5e5, 1)
    1.0
    """
    threshold = stats.chi2.isf(false_alarm_rate(false_fail_rate), cells - 1)
    noncentrality = smallest_caught(lambda size: bool(stats.ncx2.cdf(threshold, cells - 1, size) <= false_pass_rate), 1e6)
    return math.ceil(noncentrality / (4 * tv**2))


def smallest_detectable_by_chi_square(n: int, cells: int, false_fail_rate: float, false_pass_rate: float) -> float:
    """The total variation on ``cells`` cells that ``n`` samples miss at most that often; inf if above 1."""
    return smallest_caught(lambda tv: samples_needed_by_chi_square(tv, cells, false_fail_rate, false_pass_rate) <= n)


def assert_ks(counts: Ints, p: Floats, false_fail_rate: float) -> float:
    """Kolmogorov-Smirnov in the order of token id by the DKWM bound, at one n; returns the p-value."""
    distance = ks_of_law(p, token_counts(counts, len(p)))
    p_value = ks_p_value(distance, int(counts.sum()))
    if p_value <= false_alarm_rate(false_fail_rate):
        raise AssertionError(f"the distribution functions are {distance:.4f} apart, p = {p_value:.1e}")
    return p_value


def samples_needed_by_ks(distance: float, false_fail_rate: float, false_pass_rate: float) -> float:
    """Samples after which laws this far apart (largest difference of their distribution functions) are told apart.

    A bound at every n: the empirical law is within its own DKWM distance of the engine's.

    >>> samples_needed_by_ks(0.02, 1e-6, 1e-3)
    53891
    """
    roots = math.sqrt(math.log(2 / false_alarm_rate(false_fail_rate))) + math.sqrt(math.log(2 / false_pass_rate))
    return math.ceil(roots**2 / (2 * distance**2))


def smallest_detectable_by_ks(n: int, false_fail_rate: float, false_pass_rate: float) -> float:
    """The distance of distribution functions that ``n`` samples miss at most that often."""
    return smallest_caught(lambda distance: samples_needed_by_ks(distance, false_fail_rate, false_pass_rate) <= n)


def assert_same_law(first: Ints, second: Ints, false_fail_rate: float, rng: np.random.Generator) -> float:
    """Two samples of black boxes, as counts ``[V]``: are their laws the same? Returns the exact p-value.

    Chi-square of homogeneity by its rank among random splits of the pooled samples (exact at any n and any cells); below
    1e-4 the two-sample DKWM bound in the order of token id, which needs more samples.
    """
    if false_alarm_rate(false_fail_rate) < SMALLEST_RATE_BY_RANK:
        distance, p_value = ks_two_sample(first, second)
        if p_value <= false_fail_rate:
            raise AssertionError(f"the distribution functions are {distance:.4f} apart, p = {p_value:.1e}")
        return p_value
    pooled, n = first + second, int(first.sum())
    null = []
    for _ in range(_tables(false_fail_rate)):
        part = rng.multivariate_hypergeometric(pooled, n)
        null.append(chi_square_two_sample(part, pooled - part).statistic)
    statistic = chi_square_two_sample(first, second).statistic
    return _by_rank(statistic, np.array(null), false_fail_rate, rng)


def samples_needed_for_same_law(tv: float, cells: int, false_fail_rate: float, false_pass_rate: float) -> float:
    """Samples **per arm** after which laws at total variation ``tv`` on ``cells`` cells are told apart.

    Twice the one-sample figure per arm, four times in all.
    """
    return 2 * samples_needed_by_chi_square(tv, cells, false_fail_rate, false_pass_rate)


def smallest_detectable_of_same_law(n: int, cells: int, false_fail_rate: float, false_pass_rate: float) -> float:
    """The total variation on ``cells`` cells that ``n`` samples per arm miss at most that often."""
    return smallest_detectable_by_chi_square(n // 2, cells, false_fail_rate, false_pass_rate)


def assert_independent(pairs: Floats, false_fail_rate: float) -> float:
    """Pairs ``[n, 2]`` of PIT values, the second drawn after the first: are they independent? Returns log10 E.

    Pass tokens at one lag of one request, or rows of one batch.
    """
    if pairs.ndim != 2 or pairs.shape[1] != 2 or (pairs.size and not (pairs.min() >= 0 and pairs.max() <= 1)):
        raise WrongUse(f"pairs of PIT values are [n, 2] in [0, 1], not {pairs.shape}")
    centred = 2 * pairs - 1
    log_e = log_mean_exp(log_wealth_of_products(centred[:, 0] * centred[:, 1]))
    _fail(Evidence("dependence", len(pairs), log_e, unit="pairs"), false_fail_rate)
    return log_e / math.log(10)


def samples_needed_for_independence(correlation: float, false_fail_rate: float, false_pass_rate: float) -> float:
    """Pairs after which this correlation (up to 1/3) is missed at most that often.

    The fault is the density ``1 + 3 c (2u - 1)(2v - 1)``, the smallest departure with correlation c.
    """
    if not 0 < abs(correlation) <= 1 / 3:
        raise WrongUse(f"correlation = {correlation}: this family of densities reaches from -1/3 to 1/3")
    middle = (np.arange(GRID) + 0.5) / GRID * 2 - 1
    product = np.outer(middle, middle).ravel()
    density = (1 + 3 * correlation * product) / len(product)
    log_bets = np.log(1 + STAKES[:, None] * product)
    weights = np.full(len(STAKES), 1 / len(STAKES))
    return markov_samples(density[None, None], log_bets[None], weights, false_fail_rate, false_pass_rate)


def smallest_detectable_dependence(n: int, false_fail_rate: float, false_pass_rate: float) -> float:
    """The correlation that ``n`` pairs miss at most that often; inf if above 1/3."""
    return smallest_caught(lambda c: samples_needed_for_independence(c, false_fail_rate, false_pass_rate) <= n, 1 / 3)


def _fail(evidence: Evidence, false_fail_rate: float) -> None:
    if evidence.log_e >= -math.log(false_alarm_rate(false_fail_rate)):
        held = f", held by {evidence.holder!r}" if evidence.holder else ""
        raise AssertionError(f"log10 E = {evidence.log10_e:.1f} after {evidence.n} {evidence.unit}{held}")


def _tables(false_fail_rate: float) -> int:
    if false_alarm_rate(false_fail_rate) < SMALLEST_RATE_BY_RANK:
        raise WrongUse(f"false_fail_rate = {false_fail_rate}: a rank p-value at this rate needs too many null tables")
    return math.ceil(10 / false_fail_rate) - 1


def _by_rank(statistic: float, null: Floats, false_fail_rate: float, rng: np.random.Generator) -> float:
    p_value = rank_p_value(statistic, null, rng)
    if p_value <= false_fail_rate:
        raise AssertionError(f"chi-square = {statistic:.1f} ranks at p = {p_value:.1e} among {len(null)} null tables")
    return p_value


def _pooled(p: Floats, n: int) -> Floats:
    law = law_rows("p", np.asarray(p)[None])[0]
    cells = pooled_cells(n * law)
    if cells.max() < 1:
        raise WrongUse(f"n = {n} samples leave fewer than two cells that expect 50; take more samples")
    pooled: Floats = np.bincount(cells[cells >= 0], law[cells >= 0]).astype(np.float64)
    pooled /= pooled.sum()
    return pooled
