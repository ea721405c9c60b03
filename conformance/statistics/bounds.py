"""What a pass is worth: sample sizes that hold exactly, and upper bounds on the faults that were not found.

Two directions. **Before sampling**: `markov_samples` gives the n at which a mixture of bets misses a fault with
probability at most beta. It is Markov's inequality on (wealth)^-t and no approximation. **After sampling**: a correct
engine gets simultaneous 99% upper bounds on three readings of "how wrong could it still be": its leak toward the
draft, the error on every set {q/p >= t}, and total variation at a stated resolution. n is fixed in advance; the
confidence is shared equally between the three.

Counts `[V]` are of one context. Bounds over a stream are averages over its contexts of *signed* deviations: stratify
(entropy, position in the round, batch row), so that opposite errors cannot cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import logsumexp

from conformance.statistics.evidence import Floats, WrongUse
from conformance.statistics.planning import tokens_by_markov

STAKES, STAKE_WEIGHTS = np.array([0.7, 1.0, 1.4]), np.array([0.1, 0.8, 0.1])
"""The stakes of the leak bound, in units of the one planned for a correct engine, and the share of the wealth put on each."""


def markov_samples(
    fault: npt.ArrayLike, log_bets: npt.ArrayLike, weights: npt.ArrayLike, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Samples at which a mixture of J bets misses a fault at most this often; inf if none of the bets must win.

    fault `[n, 1 or J, X]`: laws of one observation (as each bet sees it) under the fault, in n contexts that come in
    equal parts; log_bets `[n, J, X]`: logarithms of the bets' factors; weights `[J]`. For bet j
    with weight w_j, L_j = ln(1/alpha) + ln(1/w_j):

        n = min over j, t > 0 of (t L_j + ln(1/beta)) / (-mean ln sum_x fault(x) b_j(x)^-t)

    >>> import math
    >>> factors = np.log([[[1.5, .5]]])                          # a coin that shows heads 90%, bet at 3 to 1
    >>> markov_samples([[[.9, .1]]], factors, [1.0], 1e-6, 1e-3)
    93.0
    """
    law, logs, w = np.asarray(fault, float), np.asarray(log_bets, float), np.asarray(weights, float)
    log_law = np.log(law, out=np.full(law.shape, -np.inf), where=law > 0)
    target, miss = -np.log(false_fail_rate), float(-np.log(false_pass_rate))
    found = []
    for j, weight in enumerate(w):
        own = log_law[:, min(j, law.shape[1] - 1)]
        found.append(tokens_by_markov(own, logs[:, j], np.zeros(len(own)), float(target - np.log(weight)), miss))
    return min((float(n) for n in found if n is not None), default=np.inf)


def smallest_caught(caught: Callable[[float], bool], largest: float = 1.0) -> float:
    """The smallest size in (0, `largest`] for which `caught(size)`, to 0.1%; inf if `largest` is missed.

    `caught` must be monotone: once true, true for every larger size.

    >>> round(smallest_caught(lambda size: size >= .25), 3)
    0.25
    """
    if not caught(largest):
        return np.inf
    low, high = 0.0, largest
    while high - low > 1e-3 * high and high > 1e-9:
        middle = np.sqrt(low * high) if low > 0 else high / 4
        low, high = (low, middle) if caught(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Bounds:
    """Upper bounds that hold together with probability `confidence`, for n samples fixed in advance."""

    n: int
    confidence: float
    leak: float
    ratio_sets: float
    total_variation: float
    resolution: int

    def __str__(self) -> str:
        return (
            f"with {self.confidence:.0%} confidence, all at once, from {self.n} samples: "
            f"the draft leak is at most {self.leak:.2g}, "
            f"every set {{q/p >= t}} is within {self.ratio_sets:.2g}, total variation at the resolution "
            f"'top {self.resolution} and the rest' is at most {self.total_variation:.2g}"
        )


def simultaneous_bounds(
    counts: npt.ArrayLike, p: npt.ArrayLike, q: npt.ArrayLike, confidence: float = 0.99, resolution: int = 50
) -> Bounds:
    """The three upper bounds at once, from counts `[V]` of one context with laws p, q `[V]`.

    Each holds at 1 - (1 - confidence) / 3, so all hold together (union bound). `resolution` heads are chosen from p alone.
    """
    x, law = _checked_counts(counts, p)
    share = (1 - confidence) / 3
    return Bounds(
        n=int(x.sum()),
        confidence=confidence,
        leak=leak_upper_bound(x, law, q, share),
        ratio_sets=ratio_sets_bound(x, law, q, share),
        total_variation=total_variation_bound(x, law, share, resolution),
        resolution=min(resolution, len(law)),
    )


def leak_upper_bound(
    counts: npt.ArrayLike,
    p: npt.ArrayLike,
    q: npt.ArrayLike,
    error: float,
    cap: float | None = None,
    planned: int | None = None,
) -> float:
    """An upper bound, at confidence 1 - `error`, on the engine's leak e toward q; counts, p, q `[V]`.

    The leak of any law r is read off the payoff g = min(q/p, cap): e = (E_r g - E_p g) / (E_q g - E_p g), which is exact for
    r = (1 - e) p + e q and assumes nothing about r otherwise. E_r g is bounded by betting (Waudby-Smith and Ramdas
    2010.09686): against each mean m the wealth prod(1 - s (g - m)), over a mixture of stakes s; every m whose wealth
    reaches 1/error is rejected. Wealth grows with m, so the accepted means end at one root. The
    stakes are planned for this n and p.

    `cap` defaults to the one, of a fixed grid, that serves this n best if the engine is correct: chosen from p and q alone.
    With `planned`, the n that stakes and cap are fixed for, the bounds at all looks hold together (a confidence sequence);
    without it the n of these counts must have been fixed in advance.
    """
    x, law = _checked_counts(counts, p)
    draft = np.asarray(q, float)
    n = float(planned or x.sum())
    if cap is None:
        cap = min((2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0), key=lambda c: _planned_width(law, draft, c, n, error))
    payoff = capped_ratio(law, draft, cap)
    base, slope = float(law @ payoff), float((draft - law) @ payoff)
    if slope <= 0:
        return 1.0  # q = p: every leak is the law p itself, and none can be bounded
    stakes = _planned_stakes(law, payoff, n, error)

    def log_wealth(leak: float) -> float:
        factors = np.log1p(-stakes[:, None] * (payoff - base - leak * slope))
        return float(logsumexp(factors @ x, b=STAKE_WEIGHTS) + np.log(error))

    if log_wealth(1.0) < 0:
        return 1.0
    if log_wealth(0.0) >= 0:
        return 0.0  # the engine leans away from the draft: even no leak at all is rejected from above
    return float(brentq(log_wealth, 0.0, 1.0, xtol=1e-9))


def capped_ratio(p: Floats, q: Floats, cap: float) -> Floats:
    """min(q/p, cap) `[..., V]`; a token that only the draft can produce pays the cap."""
    return np.minimum(np.divide(q, p, out=np.where(q > 0, cap, 0.0), where=p > 0), cap)


def _planned_stakes(p: Floats, payoff: Floats, n: float, error: float) -> Floats:
    """Stakes around the best one for n samples of a correct engine, no larger than what keeps every factor positive."""
    deviation = np.sqrt(max(float(p @ payoff**2 - (p @ payoff) ** 2), 1e-300))
    best = np.sqrt(2 * np.log(1 / error) / n) / deviation
    stakes: Floats = np.minimum(best * STAKES, 0.999 / max(float(np.ptp(payoff)), 1e-300))
    return stakes


def _planned_width(p: Floats, q: Floats, cap: float, n: float, error: float) -> float:
    """About how wide the bound will be for a correct engine: stake cost plus variance cost, in units of the leak."""
    payoff = capped_ratio(p, q, cap)
    slope, variance = float((q - p) @ payoff), float(p @ payoff**2 - (p @ payoff) ** 2)
    stake = float(_planned_stakes(p, payoff, n, error)[1])
    return np.inf if slope <= 0 else (np.log(1 / error) / (n * stake) + stake * variance / 2) / slope


def ratio_sets_bound(counts: npt.ArrayLike, p: npt.ArrayLike, q: npt.ArrayLike, error: float) -> float:
    """A bound, at confidence 1 - `error`, on |r(S) - p(S)| over **all** sets S = {q/p >= t} at once.

    counts, p, q `[V]`. The sets are half-lines in the order of q/p, so the Dvoretzky-Kiefer-Wolfowitz inequality with
    Massart's constant applies: the largest observed deviation plus sqrt(ln(2/error) / (2 n)).
    """
    x, law = _checked_counts(counts, p)
    ratio = capped_ratio(law, np.asarray(q, float), np.inf)
    _, group = np.unique(-ratio, return_inverse=True)  # tokens of equal q/p enter together
    deviation = np.cumsum(np.bincount(group, x / x.sum() - law))
    return min(1.0, float(np.abs(deviation).max() + np.sqrt(np.log(2 / error) / (2 * x.sum()))))


def total_variation_bound(counts: npt.ArrayLike, p: npt.ArrayLike, error: float, resolution: int) -> float:
    """A bound, at confidence 1 - `error`, on total variation between heads: the top tokens, and one cell for the rest.

    counts, p `[V]`; the `resolution` most probable tokens are heads. The observed distance, plus its largest mean when r is
    the truth, sqrt(cells / n) / 2 (Cauchy-Schwarz), plus sqrt(ln(1/error) / (2 n)) (McDiarmid: one sample moves the
    distance by at most 1/n).
    """
    x, law = _checked_counts(counts, p)
    n = x.sum()
    order = np.argsort(-law, kind="stable")
    deviation = (x / n - law)[order]
    if resolution >= len(law):
        cells = deviation
    else:
        cells = np.append(deviation[:resolution], deviation[resolution:].sum())
    return min(1.0, float(np.abs(cells).sum() / 2 + np.sqrt(len(cells) / n) / 2 + np.sqrt(np.log(1 / error) / (2 * n))))


def full_total_variation_bound(counts: npt.ArrayLike, p: npt.ArrayLike, error: float) -> tuple[float, int]:
    """A bound on total variation over the whole vocabulary, and the head size that gave it; counts, p `[V]`.

    The best of 60 head sizes (each at error / 60): the bound at that resolution plus p's mass of the rest. A report makes no
    claim on full total variation below this number.
    """
    x, law = _checked_counts(counts, p)
    sizes = np.unique(np.geomspace(1, len(law), 60).astype(int))
    tail = 1 - np.cumsum(np.sort(law)[::-1])
    found = [(total_variation_bound(x, law, error / len(sizes), m) + max(float(tail[m - 1]), 0.0), int(m)) for m in sizes]
    bound, head = min(found)
    return min(1.0, bound), head


def samples_needed_for_leak_bound(size: float, p: npt.ArrayLike, q: npt.ArrayLike, error: float) -> float:
    """About how many samples of a correct engine give a leak bound of `size`: its typical width, counts at their means.

    >>> p, q = np.array([.5, .3, .2]), np.array([.2, .3, .5])
    >>> n = samples_needed_for_leak_bound(.05, p, q, .01)
    >>> round(leak_upper_bound(n * p, p, q, .01), 4)
    0.05
    """
    law = np.asarray(p, float)

    def excess(log_n: float) -> float:
        n = float(np.exp(log_n))
        return leak_upper_bound(n * law, law, q, error) - size

    return np.inf if excess(np.log(1e12)) > 0 else float(np.exp(brentq(excess, 0.0, np.log(1e12), xtol=1e-6)))


def tokens_until_numerics_show(p: npt.ArrayLike, sigma: float, false_fail_rate: float) -> tuple[float, float]:
    """The n beyond which logit noise shows to the best test: (in one repeated context, fresh per context).

    p `[n, V]`, a sample of contexts; the noise has deviation `sigma`. One repeated context has a fixed error, at divergence
    sigma^2 (1 - sum p^2) / 2 from p. Fresh centred noise only flattens the average law, by the factor 1 + sigma^2 (sum p^2 -
    p(x)) to second order: half that factor's variance. Stein's lemma turns a divergence into samples, ln(1/alpha) / KL.
    Rounding is not centred: it shows earlier.

    >>> p = np.array([.6, .3, .1])
    >>> repeated, fresh = tokens_until_numerics_show(p, .05, 1e-6)
    >>> f"{repeated:.0e} {fresh:.0e}"
    '2e+04 1e+08'
    """
    law = np.atleast_2d(np.asarray(p, float))
    concentration = (law**2).sum(axis=1, keepdims=True)
    repeated = sigma**2 * (1 - concentration[:, 0]) / 2
    fresh = (law * (sigma**2 * (concentration - law)) ** 2).sum(axis=1) / 2
    stake = -np.log(false_fail_rate)
    if sigma == 0 or not repeated.max() > 0:
        return np.inf, np.inf
    return float(stake / repeated.max()), float(stake / fresh.mean()) if fresh.mean() > 0 else np.inf


def _checked_counts(counts: npt.ArrayLike, p: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Counts and law as float arrays of one shape, or a WrongUse that says what is wrong."""
    x, law = np.asarray(counts, float), np.asarray(p, float)
    if x.ndim != 1 or x.shape != law.shape:
        raise WrongUse(f"counts and p must both be [V], got {x.shape} and {law.shape}")
    if (x < 0).any() or not x.sum() > 0:
        raise WrongUse("counts must not be negative, and at least one sample is needed")
    if (law < 0).any() or abs(law.sum() - 1) > 1e-6:
        raise WrongUse(f"p must be a law: it sums to {law.sum()}")
    return x, law
