"""How many tokens show a fault, computed from the bets that are held (a bound, not an approximation).

For bets b_j with prior weight pi_j, ``L_j = ln(1/alpha) + ln(1/weight) + ln(1/pi_j)`` is the log wealth that bet j must
reach for the ledger to fail. For a fault with law r, Markov's inequality on wealth^-t gives P(miss) <= beta at

    n = min over j and t > 0 of (t L_j + ln(1/beta)) / (-ln sum_x r(x) b_j(x)^-t);

over contexts with the mean of the logarithms. It holds for every larger fault on the same ray.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats, WrongUse, false_alarm_rate, law_rows
from conformance.statistics.rows import Rows


@dataclass(frozen=True)
class Threshold:
    """What a bet has to reach: the run's alpha, and the weight of the check in the run (mode weight x check weight).

    >>> round(Threshold(1e-6, 0.6).log_e, 2)
    14.33
    """

    alpha: float = 1e-6
    weight: float = 1.0

    def __post_init__(self) -> None:
        false_alarm_rate(self.alpha)
        if not 0 < self.weight <= 1:
            raise WrongUse(f"weight = {self.weight}: the check's share of the verdict lies in (0, 1]")

    @property
    def log_e(self) -> float:
        """Log e-value at which the check alone makes the run fail."""
        return -math.log(self.alpha) - math.log(self.weight)


@dataclass(frozen=True)
class Planned:
    """A number of tokens and the bet that guarantees it."""

    tokens: int
    bet: str


class BetTable:
    """Log bets over a sample of contexts: what planning needs, computed once for many faults.

    ``p``, ``q`` are ``[C, V]`` laws of contexts drawn as the audit draws them (one row for a fixed context).
    """

    def __init__(self, bank: FaultBank, p: Floats, q: Floats | None) -> None:
        self.bank = bank
        self.p = law_rows("p", p)
        self.q = self.p if q is None else law_rows("q", q, len(self.p))
        self.rows = Rows(self.p, self.q)
        with np.errstate(divide="ignore", invalid="ignore"):
            # [laws, C, V] of r/p; a bet of size s is 1 + s (r/p - 1)
            self.ratios = [np.where(self.p > 0, bet.table(self.rows) / self.p, 1.0) for bet in bank.bets]

    def log_bet(self, j: int) -> Floats:
        """``ln b_j``, ``[C, V]``, of the j-th bet of the bank."""
        for bet, ratio in zip(self.bank.bets, self.ratios):
            if j < len(bet.sizes):
                return np.log((1 - bet.sizes[j]) + bet.sizes[j] * ratio)
            j -= len(bet.sizes)
        raise IndexError(j)

    def samples_needed(
        self,
        fault: Floats,
        threshold: Threshold = Threshold(),
        false_pass_rate: float = 1e-3,
        without: frozenset[str] = frozenset(),
    ) -> Planned | None:
        """Tokens after which a fault with laws ``[C, V]`` is missed with probability at most ``false_pass_rate``.

        None if no bet held grows under the fault. ``without`` leaves out the bets of some laws by name.
        """
        false_alarm_rate(false_pass_rate)
        fault = law_rows("fault", fault, len(self.p))
        miss = -math.log(false_pass_rate)
        best: Planned | None = None
        with np.errstate(divide="ignore"):
            log_fault = np.log(fault)
        log_fault = np.where(self.p > 0, log_fault, -np.inf)  # an impossible token multiplies wealth by 1 in the bank
        spill = np.where(self.p > 0, 0.0, fault).sum(axis=1)
        laws = [bet.name for bet in self.bank.bets for _ in bet.sizes]
        for j, name in enumerate(self.bank.names):
            if laws[j] in without:
                continue
            log_bet = self.log_bet(j)
            if float((fault * np.where(fault > 0, log_bet, 0.0)).sum(axis=1).mean()) <= 0:
                continue
            target = threshold.log_e - float(self.bank.log_prior[j])
            n = tokens_by_markov(log_fault, log_bet, spill, target, miss)
            if n is not None and (best is None or n < best.tokens):
                best = Planned(n, name)
        return best

    def smallest_detectable(
        self,
        ray: Callable[[float], Floats],
        n: int,
        threshold: Threshold = Threshold(),
        false_pass_rate: float = 1e-3,
        without: frozenset[str] = frozenset(),
        smallest: float = 1e-5,
        largest: float = 1.0,
    ) -> float | None:
        """Smallest size on a ray of faults (size -> laws ``[C, V]``) that ``n`` tokens miss at most that often.

        None if even the largest size may be missed. Every size above is caught as well, if the ray is a blend.
        """

        def excess(log_size: float) -> float:
            needed = self.samples_needed(ray(math.exp(log_size)), threshold, false_pass_rate, without)
            return (math.log(needed.tokens) if needed else 50.0) - math.log(n)

        low, high = math.log(smallest), math.log(largest)
        if excess(high) > 0:
            return None
        if excess(low) <= 0:
            return smallest
        return math.exp(brentq(excess, low, high, xtol=1e-3))


def tokens_by_markov(log_fault: Floats, log_bet: Floats, spill: Floats, target: float, miss: float) -> int | None:
    """The bound of one bet: ``min over t of (t target + miss) / (-mean ln sum_x r b^-t)``; None if it never falls."""

    spills = bool(np.any(spill > 0))
    log_bet = np.where(np.isneginf(log_fault), 0.0, log_bet)  # what the fault never gives costs nothing, whatever the bet on it
    if np.isneginf(log_bet).any():  # it stakes nothing on what the fault gives, and then has nothing left
        return None

    def log_tokens(log_t: float) -> float:
        t = math.exp(log_t)
        terms = log_fault - t * log_bet
        largest = np.maximum(terms.max(axis=1), -1e300)
        # A search calls this thousands of times: a log-sum-exp of two passes costs a tenth of the general one.
        moment = np.log(np.exp(terms - largest[:, None]).sum(axis=1)) + largest
        moment = np.logaddexp(moment, np.log(spill)) if spills else moment
        decay = -float(np.mean(moment))
        return math.log((t * target + miss) / decay) if decay > 1e-300 else 700.0

    with np.errstate(divide="ignore"):
        found = minimize_scalar(log_tokens, bounds=(-9, 3), method="bounded", options={"xatol": 1e-3})
    return math.ceil(math.exp(found.fun)) if found.fun < 60 else None


def leak(p: Floats, q: Floats) -> Callable[[float], Floats]:
    """The ray of leaks: a share of the tokens comes from the draft."""
    return lambda size: (1 - size) * p + size * q


def temperature(p: Floats) -> Callable[[float], Floats]:
    """The ray of temperatures: size d is the target at temperature 1 + d."""

    def at(size: float) -> Floats:
        powered = np.where(p > 0, np.maximum(p, 1e-300) ** (1 / (1 + size)), 0.0)
        result: Floats = powered / powered.sum(axis=1, keepdims=True)
        return result

    return at


def blend(p: Floats, fault: Floats) -> Callable[[float], Floats]:
    """The ray towards a fault: it shows in a share of the tokens."""
    return lambda size: (1 - size) * p + size * fault
