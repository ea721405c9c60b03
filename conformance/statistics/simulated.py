"""The omnibus as a trio, planned by simulation: it bets on no law in particular, so no bound from its bets exists.

Find the n0 after which 99% of 2,000 simulated runs decide. For a smaller rate of passes the check starts again at every
n0 and takes the mean over its starts; each start misses at most 1% whatever the others do, so R starts miss 0.01^R at
R n0 (three starts: one in a million).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from conformance.statistics.bank import FaultBank, token_counts
from conformance.statistics.bounds import smallest_caught
from conformance.statistics.evidence import Floats, Ints, WrongUse, false_alarm_rate
from conformance.statistics.fixed_laws import FixedLaws
from conformance.statistics.tree import log_shape

RUNS = 2_000
POWER = 0.99
MOST = 10**7


def starts_needed(false_pass_rate: float) -> int:
    """How often the check starts again.

    >>> starts_needed(0.01), starts_needed(1e-6)
    (1, 3)
    """
    return max(1, math.ceil(math.log(false_alarm_rate(false_pass_rate)) / math.log(1 - POWER) - 1e-9))


def assert_no_shape(parts: Ints, p: Floats, q: Floats | None, false_fail_rate: float, rng: np.random.Generator) -> float:
    """Omnibus on samples of one fixed law, as counts ``[R, V]`` of R successive parts; returns log10 E.

    The check starts again with every part; E is the mean over starts. Raises AssertionError if a correct engine would
    show this with probability at most ``false_fail_rate``. ``rng`` is the judge's own.
    """
    laws = FixedLaws(FaultBank(has_q=q is not None), p, q)
    parts = np.stack([token_counts(part, len(laws.p)) for part in parts])
    if parts[:, laws.p == 0].any():
        raise AssertionError(f"{int(parts[:, laws.p == 0].sum())} samples have probability 0 under p")
    leaves = np.stack([spread(parts, rng) for spread in laws.leaves])
    onwards = np.cumsum(leaves[:, ::-1], axis=1)  # from each part to the end
    logs = log_shape(onwards)
    log_e = float(logsumexp(logs)) - math.log(logs.size)
    if log_e >= -math.log(false_alarm_rate(false_fail_rate)):
        raise AssertionError(f"log10 E = {log_e / math.log(10):.1f} after {int(parts.sum())} samples")
    return log_e / math.log(10)


def samples_needed_for_shape(
    fault: Floats,
    p: Floats,
    q: Floats | None,
    false_fail_rate: float,
    false_pass_rate: float,
    rng: np.random.Generator,
    runs: int = RUNS,
) -> float:
    """Samples after which `assert_no_shape`, in equal parts, misses the law ``fault [V]`` at most that often.

    Simulated: good to 5%. inf above ten million.
    """
    starts = starts_needed(false_pass_rate)
    caught = _power(fault, p, q, false_fail_rate, starts, rng, runs)
    low, high = 1, 64
    while not caught(high):
        low, high = high, 4 * high
        if low > MOST:
            return math.inf
    while high > 1.05 * low + 1:
        middle = math.ceil(math.sqrt(low * high))
        low, high = (low, middle) if caught(middle) else (middle, high)
    return starts * high


def smallest_detectable_shape(
    ray: Callable[[float], Floats],
    n: int,
    p: Floats,
    q: Floats | None,
    false_fail_rate: float,
    false_pass_rate: float,
    rng: np.random.Generator,
    runs: int = RUNS,
) -> float:
    """Smallest size on a ray of laws (size -> ``[V]``) that ``n`` samples in equal parts miss at most that often."""
    starts = starts_needed(false_pass_rate)
    if n < starts:
        raise WrongUse(f"n = {n} samples are fewer than the {starts} starts that this false-pass rate needs")
    return smallest_caught(lambda size: _power(ray(size), p, q, false_fail_rate, starts, rng, runs)(n // starts))


def _power(
    fault: Floats, p: Floats, q: Floats | None, false_fail_rate: float, starts: int, rng: np.random.Generator, runs: int
) -> Callable[[int], bool]:
    """Do 99% of the runs decide after n samples of one start, whose share of the mean is 1 / starts?"""
    laws = FixedLaws(FaultBank(has_q=q is not None), p, q)
    needed = -math.log(false_alarm_rate(false_fail_rate)) + math.log(starts)

    def caught(n: int) -> bool:
        counts = rng.multinomial(n, fault, size=runs)
        counts[:, laws.p == 0] = 0
        leaves = np.stack([spread(counts, rng) for spread in laws.leaves])
        logs = logsumexp(log_shape(leaves), axis=0) - math.log(len(leaves))
        return bool((logs >= needed).mean() >= POWER)

    return caught
