"""Acceptance as two orthogonal martingales: the verifier, and the law that the drafts came from.

Under a declared rule the draft token x is accepted with probability rho(x). The observed acceptance rate minus the
predicted one, sum q rho, splits into two parts with mean zero each, whatever the other does:

    a - sum(q rho)  =  (a - rho(x))  +  (rho(x) - sum(q rho))
                        verifier         draft

The first is a statement on the verifier alone, given the drafts: a wrong draft cannot move it. The second is a statement
on the drafts alone: drafts that are not drawn from q move it, and no verifier can. A rate that merely *looks* right may be
the sum of two faults; this split sees both. (Acceptance and correctness are independent: none of this replaces a test of
the output's law.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from conformance.statistics.bets import law_of
from conformance.statistics.bounds import markov_samples, smallest_caught
from conformance.statistics.evidence import Floats, Ints, WrongUse
from conformance.statistics.tolerance import law_range, worst_mean
from conformance.statistics.wealth import BetMixture, log_threshold

FLOAT32_ETA = 1e-6
"""Logit error of laws that were injected and only pass through float32 arithmetic."""

BFLOAT16_ETA = 2.0**-8
"""The same where the ratio or the laws pass through bfloat16."""

RATIO_RULES = ("ratio", "without_replacement")
"""Accept with probability min(1, p/q); p, q are the laws left after earlier siblings were rejected."""
TARGET_RULES = ("one_hot", "token_matching", "target_only")
"""Accept with probability p(x), however x was found; p is what earlier siblings left."""
STAKES = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Sizes of the bets: a fault's share of the steps, or a stake on the sign of a martingale."""


def accept_law(rule: str, p: Floats, q: Floats) -> Floats:
    """The probability that each draft token would be accepted, `[m, V]`, from laws `[m, V]`; 0 where p is 0."""
    if rule in TARGET_RULES:
        return p
    if rule in RATIO_RULES:
        return np.asarray(np.where(p >= q, np.where(p > 0, 1.0, 0.0), p / np.where(q > 0, q, 1)))
    raise WrongUse(f"the rule {rule!r} gives no draft token an acceptance probability; {RATIO_RULES + TARGET_RULES} do")


def accept_range(rule: str, p: Floats, q: Floats, eta_p: float, eta_q: float) -> tuple[Floats, Floats]:
    """The smallest and largest acceptance probability over logit errors within eta_p and eta_q, `[m, V]` each."""
    (p_low, p_high), (q_low, q_high) = law_range(p, eta_p), law_range(q, eta_q)
    return accept_law(rule, p_low, q_high), accept_law(rule, p_high, q_low)


class AcceptanceBets:
    """Bets on both martingales in m contexts with laws p, q `[m, V]`, under a declared rule.

    eta_p, eta_q: how well the engine's own laws are known; `FLOAT32_ETA` where they were injected, more where rescored.
    Every bet stays fair for all laws within. without: laws that are not bet on (`law_of` a bet's name).
    """

    def __init__(
        self,
        p: npt.ArrayLike,
        q: npt.ArrayLike,
        rule: str = "ratio",
        eta_p: float = FLOAT32_ETA,
        eta_q: float = FLOAT32_ETA,
        without: Collection[str] = (),
    ) -> None:
        self.p, self.q = np.atleast_2d(np.asarray(p, float)), np.atleast_2d(np.asarray(q, float))
        if self.p.shape != self.q.shape:
            raise WrongUse(f"p and q must both be [m, V], got {self.p.shape} and {self.q.shape}")
        self.rho = accept_law(rule, self.p, self.q)
        self.low, self.high = accept_range(rule, self.p, self.q, eta_p, eta_q)
        others = accept_alternatives(rule, self.p, self.q)
        self.alternatives = {name: table for name, table in others.items() if law_of(name) not in without}
        payoffs = self.rho - (self.q * self.rho).sum(axis=1, keepdims=True)
        self.draft_payoffs = [sign * payoffs for sign in (1, -1)]
        self.draft_worst = [worst_mean(self.q, payoff, eta_q) for payoff in self.draft_payoffs]

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """One name per bet on the accept flags."""
        return tuple(self.alternatives)

    draft_names: tuple[str, ...] = tuple(
        f"drafts {kind} acceptable than q says, stake {stake}" for kind in ("more", "less") for stake in STAKES
    )

    def verifier_log_factors(self, rows: npt.ArrayLike, drafts: npt.ArrayLike, accepted: npt.ArrayLike) -> Floats:
        """Log factors `[n, J]` of accept flags `[n]` given draft tokens `[n]` in contexts `rows [n]`.

        A bet is another acceptance probability a'(x): a'/rho if accepted, (1 - a')/(1 - rho) if not, divided by its worst mean
        over the range of rho. Where rho is 0 or 1 the flag is a matter of support, not of odds: factor 1.
        """
        i, x, flag = np.asarray(rows), np.asarray(drafts), np.asarray(accepted, bool)
        rho, low, high = self.rho[i, x], self.low[i, x], self.high[i, x]
        open_odds = (rho > 0) & (rho < 1)
        safe = np.where(open_odds, rho, 0.5)
        columns = []
        for table in self.alternatives.values():
            other = np.where(open_odds, table[i, x], 0.5)
            won, lost = other / safe, (1 - other) / (1 - safe)
            worst = np.maximum(low * won + (1 - low) * lost, high * won + (1 - high) * lost)
            with np.errstate(divide="ignore"):  # whoever bets on certainty may lose everything
                columns.append(np.where(open_odds, np.log(np.where(flag, won, lost)) - np.log(worst), 0.0))
        return np.stack(columns, axis=1)

    def draft_log_factors(self, rows: npt.ArrayLike, drafts: npt.ArrayLike) -> Floats:
        """Log factors `[n, 10]` of the draft tokens alone: bets on the mean of rho(x), up and down."""
        i, x = np.asarray(rows), np.asarray(drafts)
        stakes = np.asarray(STAKES)
        columns = [
            np.log1p(stakes * payoff[i, x][:, None]) - np.log1p(stakes * worst[i][:, None])
            for payoff, worst in zip(self.draft_payoffs, self.draft_worst)
        ]
        return np.concatenate(columns, axis=1)

    def verifier(self) -> BetMixture:
        """A fresh account for the accept flags."""
        return BetMixture.equal(self.verifier_names)

    def draft(self) -> BetMixture:
        """A fresh account for the drafts' law."""
        return BetMixture.equal(self.draft_names)


def accept_alternatives(rule: str, p: Floats, q: Floats) -> dict[str, Floats]:
    """Other acceptance probabilities `[m, V]` that known faults have, each blended so that no single flag ruins the bet.

    Rejected drafts let through (a ratio upside down is one of these), accepted ones refused, the target at another
    temperature, and the accept coin being the number that drew the draft by inverse CDF (in token order, from below or from
    above).
    """
    rho = accept_law(rule, p, q)
    found = {f"rejected drafts let through {share}": rho + share * (1 - rho) for share in STAKES}
    found |= {f"accepted drafts refused {share}": (1 - share) * rho for share in STAKES}
    for exponent in (-0.08, -0.02, 0.02, 0.08):
        tilted = np.where(p > 0, p, 1) ** (1 + exponent) * (p > 0)
        tilted /= tilted.sum(axis=1, keepdims=True)
        found[f"target at temperature {1 / (1 + exponent):.2f}"] = 0.99 * accept_law(rule, tilted, q) + 0.01 * rho
    above = np.cumsum(q, axis=1)
    for name, start in (("from below", above - q), ("from above", 1 - above)):
        shared = np.clip((rho - start) / np.where(q > 0, q, 1), 0, 1)
        found[f"accept coin drew the draft, {name}"] = 0.9 * shared + 0.1 * rho
    return found


def assert_acceptance(
    rows: npt.ArrayLike, drafts: npt.ArrayLike, accepted: npt.ArrayLike, bets: AcceptanceBets, false_fail_rate: float
) -> tuple[float, float]:
    """Raise AssertionError if flags or drafts `[n]` prove a fault, each at half the rate; else return both log e-values."""
    verifier, draft = bets.verifier(), bets.draft()
    verifier.add(bets.verifier_log_factors(rows, drafts, accepted))
    draft.add(bets.draft_log_factors(rows, drafts))
    i, x, flag = np.asarray(rows), np.asarray(drafts), np.asarray(accepted, float)
    rates = f"accepted {flag.mean():.4f}, expected of these drafts {bets.rho[i, x].mean():.4f}, "
    rates += f"expected of drafts from q {(bets.q * bets.rho).sum(axis=1)[i].mean():.4f}"
    for side, account in (("the verifier's flags", verifier), ("the drafts", draft)):
        if account.log_e >= log_threshold(false_fail_rate / 2):
            raise AssertionError(
                f"{side} break the rule ({account.strongest}; log10 e {account.log_e / np.log(10):.1f}): {rates}"
            )
    return verifier.log_e, draft.log_e


def samples_needed_for_let_through(share: float, bets: AcceptanceBets, false_fail_rate: float, false_pass_rate: float) -> float:
    """Steps after which a verifier that lets this share of rejected drafts through is missed with at most this probability."""
    m, V = bets.p.shape
    rows, drafts = np.repeat(np.arange(m), V), np.tile(np.arange(V), m)
    faulty = bets.rho + share * (1 - bets.rho)
    law = np.stack([bets.q * faulty, bets.q * (1 - faulty)], axis=1).reshape(m, 1, 2 * V)
    tables = [bets.verifier_log_factors(rows, drafts, np.full(m * V, flag)).reshape(m, V, -1) for flag in (True, False)]
    logs = np.concatenate(tables, axis=1).transpose(0, 2, 1)
    return markov_samples(law, logs, bets.verifier().weights, false_fail_rate / 2, false_pass_rate)


def smallest_detectable_let_through(n: int, bets: AcceptanceBets, false_fail_rate: float, false_pass_rate: float) -> float:
    """The smallest share of rejected drafts let through that n steps catch; inf if none is."""

    def caught(share: float) -> bool:
        return n >= samples_needed_for_let_through(share, bets, false_fail_rate, false_pass_rate)

    return smallest_caught(caught)


def block_stop_law(p: npt.ArrayLike, q: npt.ArrayLike, drafts: Sequence[int] | Ints) -> Floats:
    """The law of the number of accepted drafts under block verification, given the drafts: `[k+1]`.

    p `[k+1, V]`, q `[k, V]`. With P_i = min(P_{i-1} p/q, 1), Z_i = sum (P_i p - q)+, h_i = Z_i / (Z_i + 1 - P_i) and
    h_k = P_k, the longest i with u_i < h_i is kept (Sun et al. 2403.10444): no flag of a single position has a law of its own.

    >>> block_stop_law([[.5, .5], [.5, .5]], [[.8, .2]], [0]).tolist()
    [0.375, 0.625]
    """
    laws, draft_laws = np.asarray(p, float), np.asarray(q, float)
    k = len(drafts)
    weights = block_weights(laws, draft_laws, drafts)
    stop = np.ones(k + 1)  # stop[0]: nothing else was accepted
    for i in range(1, k + 1):
        if i == k:
            stop[i] = weights[i]
        else:
            left = np.maximum(weights[i] * laws[i] - draft_laws[i], 0).sum()
            stop[i] = 1.0 if weights[i] == 1 else left / (left + 1 - weights[i])
    longer = np.concatenate([np.cumprod((1 - stop)[::-1])[::-1][1:], [1.0]])
    return np.asarray(stop * longer)


def block_weights(p: Floats, q: Floats, drafts: Sequence[int] | Ints) -> Floats:
    """P_0..P_k of block verification: P_0 = 1, P_i = min(P_{i-1} p_i(x_i) / q_i(x_i), 1); `[k+1]`."""
    weights = [1.0]
    for i, x in enumerate(drafts):
        weights.append(min(weights[-1] * float(p[i, x]) / float(q[i, x]), 1.0) if q[i, x] > 0 else 1.0)
    return np.array(weights)
