"""Numerics are not faults: bets that a correct engine with slightly different logits cannot win.

Two lawful configurations of one engine (batch 1 and batch 32, two kernels) give logits that differ in the last bits.
In one fixed context repeated many times, every bet of an exact test finds that difference and accuses the engine. So
the null hypothesis is made composite: the engine's logits are ours plus errors of at most `eta`. A bet `b(x)` that
pays at most 1 on average under our law p may pay more under another law of the box; dividing it by its **worst mean**

    M = max over |xi| <= eta of E[b(x)],  x ~ softmax(log p + xi)

makes it fair for all of them. M is found exactly: the worst errors are +eta where b > M and -eta elsewhere, which is
a fixed point. Deflating by the largest law ratio exp(2 eta) instead would throw small leaks away: at eta = .02 that
costs .04 per token, M costs .0004, and a leak of 3% is worth .0005.

Two nulls are offered and a report names the one it used. The worst case: `worst_mean(p, b, eta)`. Centred errors,
drawn afresh in every context: `worst_mean(p, b, centred_eta(sigma))`, a modelling assumption for audits over many
contexts, because the mean law under mean-zero noise of deviation sigma differs from p by factors 1 +- sigma^2 at most
(to second order).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from conformance.statistics.bounds import markov_samples, smallest_caught
from conformance.statistics.evidence import Floats, WrongUse
from conformance.statistics.wealth import BetMixture, log_threshold

SMALLEST_SAMPLE = 1_000
"""Fewer positions than this say nothing about the largest difference."""


@dataclass(frozen=True)
class Tolerance:
    """What two lawful configurations of one engine differ by, over `positions` positions.

    `eta`: largest error of a logit, after the best common shift of the row (half the range of the row's differences).
    `sigma`: standard deviation of one configuration's error (rms of the shifted differences / sqrt 2), weighted by
    the law. `tau`: largest total variation distance between the two laws of a position.
    """

    eta: float
    sigma: float
    tau: float
    positions: int

    def times(self, factor: float) -> Tolerance:
        """The tolerance of logits whose errors are `factor` times as large.

        >>> Tolerance(2e-5, 1e-5, 1e-6, 10_000).times(2)
        Tolerance(eta=4e-05, sigma=2e-05, tau=2e-06, positions=10000)
        """
        return Tolerance(factor * self.eta, factor * self.sigma, min(1.0, factor * self.tau), self.positions)


def joined(parts: Iterable[Tolerance]) -> Tolerance:
    """The tolerance over the positions of all parts together. Raises WrongUse for fewer than 1,000 positions.

    >>> joined([Tolerance(3e-5, 1e-5, 1e-6, 600), Tolerance(2e-5, 7e-6, 2e-6, 600)])
    Tolerance(eta=3e-05, sigma=8.631338250816034e-06, tau=2e-06, positions=1200)
    """
    some = list(parts)
    positions = sum(one.positions for one in some)
    if positions < SMALLEST_SAMPLE:
        raise WrongUse(f"a tolerance needs at least {SMALLEST_SAMPLE} positions, got {positions}: score more text")
    square = sum(one.sigma**2 * one.positions for one in some) / positions
    return Tolerance(max(one.eta for one in some), float(np.sqrt(square)), max(one.tau for one in some), positions)


def difference(first: npt.ArrayLike, second: npt.ArrayLike) -> Tolerance:
    """What logits `[n, V]` of two configurations at the same positions differ by, without speculation, for any n above 0.

    A constant added to a row of logits changes no law, so each row's differences are shifted by the middle of their
    range. Entries that are -inf in both are ignored. Raises WrongUse for unequal shapes or other non-finite logits.

    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(0, 3, (1000, 50))
    >>> difference(logits, logits + 7)                            # a shift is no difference
    Tolerance(eta=0.0, sigma=0.0, tau=0.0, positions=1000)
    >>> measured = difference(logits, logits + rng.uniform(-.01, .01, logits.shape))
    >>> 0.009 < measured.eta <= 0.01, measured.tau < 0.01
    (True, True)
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    if a.ndim != 2 or a.shape != b.shape:
        raise WrongUse(f"two arrays of logits [n, V] of the same positions are needed, got {a.shape} and {b.shape}")
    masked = np.isneginf(a) & np.isneginf(b)
    if not (np.isfinite(a) | masked).all() or not (np.isfinite(b) | masked).all():
        raise WrongUse("logits must be finite, or -inf in both configurations at once: look for NaN or a differing mask")
    apart = np.where(masked, np.nan, np.where(masked, 0, a) - np.where(masked, 0, b))
    high, low = np.nanmax(apart, axis=1), np.nanmin(apart, axis=1)
    law_a, law_b = np.exp(log_softmax(a, axis=1)), np.exp(log_softmax(b, axis=1))
    error = np.where(masked, 0, apart - ((high + low) / 2)[:, None])
    centred = error - (law_a * error).sum(axis=1, keepdims=True)
    rms = float(np.sqrt((law_a * centred**2).sum(axis=1).mean()))
    return Tolerance(
        eta=_rounded(float((high - low).max() / 2), a),
        sigma=_rounded(rms / np.sqrt(2), a),
        tau=_rounded(float(np.abs(law_a - law_b).sum(axis=1).max() / 2), a),
        positions=len(a),
    )


def _rounded(value: float, logits: Floats) -> float:
    """`value`, or 0 where it is only the rounding of float64 subtraction at the logits' own size."""
    size = float(np.abs(logits[np.isfinite(logits)]).max())
    return 0.0 if value < 64 * np.finfo(float).eps * (size + 1) else value


def centred_eta(sigma: float) -> float:
    """The box that holds the *average* law of an engine whose logit errors are centred, fresh in every context.

    >>> round(centred_eta(.02), 6)
    0.0016
    """
    return 4 * sigma**2


def law_range(law: npt.ArrayLike, eta: float) -> tuple[Floats, Floats]:
    """The smallest and largest probability of each token over logit errors |xi| <= eta: odds times exp(-+2 eta); any shape.

    >>> low, high = law_range([.5, .5, 0., 1.], .1)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.45, 0.45, 0.0, 1.0], [0.55, 0.55, 0.0, 1.0])
    """
    p = np.asarray(law, float)
    small, large = p * np.exp(-2 * eta), p * np.exp(2 * eta)
    return small / (small + 1 - p), large / (large + 1 - p)


def worst_mean(law: npt.ArrayLike, payoff: npt.ArrayLike, eta: float | npt.ArrayLike) -> Floats:
    """The largest mean of `payoff [..., V]` over all logit errors |xi| <= eta on `law [..., V]`; shape `[...]`.

    `eta` is one number or one per row `[...]`. The smallest mean is `-worst_mean(law, -payoff, eta)`. Exact: the
    iteration goes on until no row improves (each step is a better corner of the box, so stopping earlier would
    understate M).

    >>> import math
    >>> p, b, eta = [.5, .5], [0., 2.], .1
    >>> round(float(worst_mean(p, b, eta)), 5), round(2 * math.exp(.1) / (math.exp(.1) + math.exp(-.1)), 5)
    (1.09967, 1.09967)
    """
    p, box = np.asarray(law, float), np.asarray(eta, float)
    if (box < 0).any() or not np.isfinite(box).all():
        raise WrongUse(f"eta must be finite and not negative, got {eta!r}")
    box = box[..., None] if box.ndim else box
    return worst_mean_between(p * np.exp(-box), p * np.exp(box), payoff)


def worst_mean_between(low: npt.ArrayLike, high: npt.ArrayLike, payoff: npt.ArrayLike) -> Floats:
    """The largest sum(w b) / sum(w) over weights low <= w <= high, all `[..., V]`; shape `[...]`.

    `worst_mean` is the case of weights p exp(+-eta); a residual (p - q)+ whose p and q are known within factors is another.
    Rows whose upper weights are all zero have no law: their mean is given as the row's largest payoff.
    """
    low, high, b = np.broadcast_arrays(np.asarray(low, float), np.asarray(high, float), np.asarray(payoff, float))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(b).all()):
        raise WrongUse("weights and payoffs must be finite; cap the payoff of tokens of probability zero")
    if (low < 0).any() or (low > high).any():
        raise WrongUse("weights must satisfy 0 <= low <= high")
    mean = np.where((high > 0).any(axis=-1), np.where(high > 0, b, np.inf).min(axis=-1), b.max(axis=-1))
    while True:  # policy iteration: the mean rises strictly until the fixed point, over finitely many corners
        weights = np.where(b > mean[..., None], high, low)
        total = weights.sum(axis=-1)
        better = np.where(total > 0, (weights * b).sum(axis=-1) / np.where(total > 0, total, 1), mean)
        if not (better > mean).any():
            break
        mean = np.maximum(better, mean)
    result: Floats = mean
    return result


def worst_mean_in_total_variation(law: npt.ArrayLike, payoff: npt.ArrayLike, tau: float) -> Floats:
    """An upper bound on the mean of `payoff [..., V]` over all laws within total variation `tau` of `law [..., V]`.

    Moving mass tau from the lowest payoff to the highest gains at most tau (highest - lowest): the bound needs no
    logits.

    >>> float(worst_mean_in_total_variation([.5, .5], [0., 2.], .01))
    1.02
    """
    p, b = np.broadcast_arrays(np.asarray(law, float), np.asarray(payoff, float))
    if not 0 <= tau <= 1:
        raise WrongUse(f"tau is a total variation distance in [0, 1], got {tau}")
    high, low = b.max(axis=-1), b.min(axis=-1)
    bound: Floats = np.minimum((p * b).sum(axis=-1) + tau * (high - low), high)
    return bound


def deflated(law: npt.ArrayLike, payoff: npt.ArrayLike, eta: float) -> Floats:
    """log(b / M) `[..., V]` of a positive payoff b `[..., V]`: a bet that no engine within eta can win on average.

    law `[..., V]`. For any bet of any bank; those linear in one ratio share one M (`tolerant_leak_log_factors`).

    >>> law, bet = np.array([.5, .5]), np.array([.5, 1.5])
    >>> float((law * np.exp(deflated(law, bet, 0.))).sum()), float((law * np.exp(deflated(law, bet, .1))).sum()) < 1
    (1.0, True)
    """
    b = np.asarray(payoff, float)
    if not (b > 0).all():
        raise WrongUse("a payoff must be positive; blend it with 1 so that no token ruins the bet")
    won: Floats = np.log(b) - np.log(worst_mean(law, b, eta))[..., None]
    return won


def recentred_ratio(law: npt.ArrayLike, alternative: npt.ArrayLike, cap: float = 1e3) -> Floats:
    """The payoff min(r/p, cap) of a bet on law r, recentred to mean exactly 1 under p; `[..., V]`, never negative.

    Without recentring a capped bet is ruined: its mean is below 1 and the loss compounds. Where p is 0 the ratio
    counts as 0.

    >>> recentred_ratio([.5, .5, 0.], [.25, .5, .25]).round(3).tolist()
    [0.75, 1.25, 0.25]
    """
    p, r = np.broadcast_arrays(np.asarray(law, float), np.asarray(alternative, float))
    ratio = np.minimum(np.divide(r, p, out=np.zeros(p.shape), where=p > 0), cap)
    payoff: Floats = ratio - (p * ratio).sum(axis=-1, keepdims=True) + 1
    return payoff


LEAKS = tuple(np.geomspace(1e-3, 0.999, 10).round(4).tolist())
"""Sizes of the leaks toward the draft that are bet on."""


def tolerant_leak_log_factors(
    tokens: npt.ArrayLike, p: npt.ArrayLike, q: npt.ArrayLike, eta: float, leaks: Sequence[float] = LEAKS
) -> Floats:
    """Log factors `[n, J]` of bets on leaks (1 - e) p + e q, fair for every engine with logits within eta of ours.

    tokens `[n]`; p, q `[n, V]`, or `[V]` for one context repeated; one bet per size in `leaks`. A leak's payoff 1 + e
    (r - 1) is linear in the recentred ratio r, so its worst mean is 1 + e (M - 1) with the one M of r.
    """
    x, laws, drafts = np.asarray(tokens), np.atleast_2d(np.asarray(p, float)), np.atleast_2d(np.asarray(q, float))
    ratio = recentred_ratio(laws, drafts)
    worst = worst_mean(laws, ratio, eta)
    seen = ratio[np.arange(len(x)), x] if len(ratio) > 1 else ratio[0, x]
    sizes = np.asarray(leaks)
    won: Floats = np.log1p(sizes * (seen - 1)[:, None]) - np.log1p(sizes * (worst - 1)[:, None])
    return won


def assert_no_leak_within_tolerance(
    tokens: npt.ArrayLike, p: npt.ArrayLike, q: npt.ArrayLike, eta: float, false_fail_rate: float
) -> float:
    """Raise AssertionError if tokens `[n]` prove a leak that no logit error within eta explains; else return log e.

    p, q `[n, V]` or `[V]`. An engine within eta of our logits fails with probability at most `false_fail_rate`.
    """
    bets = BetMixture.equal([f"leak {leak}" for leak in LEAKS])
    bets.add(tolerant_leak_log_factors(tokens, p, q, eta))
    if bets.log_e >= log_threshold(false_fail_rate):
        raise AssertionError(
            f"the tokens lean to the draft's law beyond logit errors of {eta}: log10 e = {bets.log_e / np.log(10):.1f} "
            f"over {bets.n} tokens, held by {bets.strongest}"
        )
    return bets.log_e


def samples_needed_for_leak_within_tolerance(
    leak: float, p: npt.ArrayLike, q: npt.ArrayLike, eta: float, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Tokens after which a leak of this size is missed at most this often; inf if the tolerance hides it.

    p, q `[n, V]`: a sample of the contexts to come, taken in equal parts. The engine's other numerics are taken to be ours.
    """
    laws, drafts = np.atleast_2d(np.asarray(p, float)), np.atleast_2d(np.asarray(q, float))
    ratio = recentred_ratio(laws, drafts)
    worst = worst_mean(laws, ratio, eta)
    sizes = np.asarray(LEAKS)[None, :, None]
    log_bets = np.log1p(sizes * (ratio - 1)[:, None]) - np.log1p(sizes * (worst - 1)[:, None, None])
    fault = (1 - leak) * laws + leak * drafts
    weights = np.full(len(LEAKS), 1 / len(LEAKS))
    return markov_samples(fault[:, None], log_bets, weights, false_fail_rate, false_pass_rate)


def smallest_detectable_leak_within_tolerance(
    n: int, p: npt.ArrayLike, q: npt.ArrayLike, eta: float, false_fail_rate: float, false_pass_rate: float
) -> float:
    """The smallest leak that n tokens catch with probability 1 - `false_pass_rate`; inf if none is. p, q as above.

    A stronger leak is caught too, since every bet's mean is monotone along the ray.
    """

    def caught(leak: float) -> bool:
        return n >= samples_needed_for_leak_within_tolerance(leak, p, q, eta, false_fail_rate, false_pass_rate)

    return smallest_caught(caught)
