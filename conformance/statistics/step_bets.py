"""Bets on a step log: does the draft follow q, does the flag follow p/q, does the replacement follow the residual?

Four accounts, each an e-process of its own (they share tokens, so they are averaged in a ledger and never multiplied):

* **draft follows q**: the draft token given the context, against q. The check that nobody ships: q handed over as the whole
  law while drafts come from its top-k, from another temperature, from its argmax.
* **accept flag**: the flag given the draft, against the declared rule (`acceptance`).
* **residual**: the token after a rejection, against norm((p - q)+).
* **coupling**: the same token against laws it would have if its random number were not independent: the accept coin
  again, or the number that drew the draft, by inverse CDF in token order or by falling p, from below or from above.

The bets are discrete: overlaps of intervals are computed exactly, no auxiliary randomness is drawn. The last two accounts
are kept for the ratio rules only; where the replacement is a plain draw from p, tests of the output's law cover it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress

import numpy as np
import numpy.typing as npt

from conformance.statistics.acceptance import FLOAT32_ETA, RATIO_RULES, AcceptanceBets
from conformance.statistics.bets import law_of
from conformance.statistics.bounds import markov_samples, smallest_caught
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse, log_mean_exp
from conformance.statistics.step_log import NOTHING, Steps, assert_support
from conformance.statistics.tolerance import law_range, recentred_ratio, worst_mean_between
from conformance.statistics.wealth import BetMixture, log_threshold

SHARES = (0.97, 0.3, 0.03)
"""Every alternative law is bet on in these blends."""
HEADS = (0.5, 0.7, 0.8, 0.87, 0.92, 0.95, 0.98)
"""Masses of the draft's head that drafts might be drawn from while the whole q is handed over."""
TILTS = (-0.32, -0.08, -0.02, 0.02, 0.08, 0.32)


class LawBets:
    """Bets on alternatives to one law `[m, V]` whose weights are known to lie in [low, high]; fair for all of them."""

    def __init__(self, law: Floats, alternatives: dict[str, Floats], low: Floats, high: Floats) -> None:
        self.names = tuple(f"{name}, {share:.0%}" for name in alternatives for share in SHARES)
        self.ratios = [recentred_ratio(law, other) for other in alternatives.values()]
        self.worst = [worst_mean_between(low, high, ratio) for ratio in self.ratios]

    def log_factors(self, rows: Ints, tokens: Ints) -> Floats:
        """Log factors `[n, J]` of tokens `[n]` in contexts `rows [n]`."""
        shares = np.asarray(SHARES)
        columns = [
            np.log1p(shares * (ratio[rows, tokens] - 1)[:, None]) - np.log1p(shares * (worst[rows] - 1)[:, None])
            for ratio, worst in zip(self.ratios, self.worst)
        ]
        return np.concatenate(columns, axis=1)


class StepBets:
    """The accounts of a step log in m contexts with laws p, q `[m, V]` under a declared rule; factors come per step.

    p, q as in `support_violations`. eta_p, eta_q: logit errors within which the engine's own laws are known. without: laws
    that are not bet on (`law_of` a bet's name).
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
        self.rule = rule
        self.p, self.q = np.atleast_2d(np.asarray(p, float)), np.atleast_2d(np.asarray(q, float))
        up = np.exp(eta_q)
        self.draft = LawBets(self.q, draft_alternatives(self.p, self.q), self.q / up, self.q * up)
        self.flags = None if rule == "undeclared" else AcceptanceBets(self.p, self.q, rule, eta_p, eta_q)
        self.residual: LawBets | None = None
        self.names = {"draft follows q": self.draft.names}
        if self.flags is not None:
            self.names["accept flag"] = self.flags.verifier_names
        if rule in RATIO_RULES:
            self._prepare_residual(eta_p, eta_q)
        self._held = {check: [law_of(name) not in without for name in names] for check, names in self.names.items()}
        self.names = {check: tuple(compress(names, self._held[check])) for check, names in self.names.items()}

    def _prepare_residual(self, eta_p: float, eta_q: float) -> None:
        (p_low, p_high), (q_low, q_high) = law_range(self.p, eta_p), law_range(self.q, eta_q)
        low, high = np.maximum(p_low - q_high, 0), np.maximum(p_high - q_low, 0)
        self.left = _normalised(np.maximum(self.p - self.q, 0))
        self.residual = LawBets(self.left, residual_alternatives(self.p, self.q), low, high)
        mass = np.maximum(self.p - self.q, 0).sum(axis=1)
        self.slack = np.minimum(
            1, (high - low).sum(axis=1) / np.where(mass > 0, mass, 1)
        )  # total variation of the unknown part
        self.slack[mass == 0] = 1
        ranking = np.argsort(-self.p, axis=1, kind="stable")
        self.starts = {"token order": mass_before(self.left), "falling p": mass_before(self.left, ranking)}
        self.draft_starts = {"token order": mass_before(self.q), "falling p": mass_before(self.q, ranking)}
        self.names["residual"] = self.residual.names
        self.names["coupling"] = tuple(
            f"{source} again, {order} from {end}, {share:.0%}"
            for order in self.starts
            for end in ("below", "above")
            for source in ("accept coin", "draft's number")
            for share in SHARES[:2]
        )

    def accounts(self) -> dict[str, BetMixture]:
        """A fresh account for each family of bets."""
        return {check: BetMixture.equal(names) for check, names in self.names.items()}

    def log_factors(self, steps: Steps) -> dict[str, Floats]:
        """Log factors `[n, J]` of each account; a step without a replacement token has factor 1 in the last two."""
        rows, drafts = steps.rows, steps.drafts
        found = {"draft follows q": self.draft.log_factors(rows, drafts)}
        if self.flags is not None:
            found["accept flag"] = self.flags.verifier_log_factors(rows, drafts, steps.accepted)
        if self.residual is not None:
            chosen = np.flatnonzero(~steps.accepted & (steps.emitted != NOTHING))
            i, x, y = rows[chosen], drafts[chosen], steps.emitted[chosen]
            for check, factors in (("residual", self.residual.log_factors(i, y)), ("coupling", self._coupling(i, x, y))):
                found[check] = np.zeros((len(steps), factors.shape[1]))
                found[check][chosen] = factors
        return {check: factors[:, self._held[check]] for check, factors in found.items()}

    def _coupling(self, i: Ints, x: Ints, y: Ints) -> Floats:
        """Bets that y was drawn by inverse CDF from a number already used: its interval against where that number must lie."""
        assert self.flags is not None
        width, share = self.left[i, y], np.asarray(SHARES[:2])
        refused = 1 - self.flags.rho[i, x]
        columns = []
        for order in self.starts:
            below, draft_below = self.starts[order][i, y], self.draft_starts[order][i, x]
            for start, draft_start in ((below, draft_below), (1 - below - width, 1 - draft_below - self.q[i, x])):
                for left, size in ((1 - refused, refused), (draft_start, self.q[i, x])):
                    common = np.minimum(start + width, left + size) - np.maximum(start, left)
                    safe = (width > 0) & (size > 0)
                    payoff = np.where(safe, np.maximum(common, 0) / np.where(safe, width * size, 1), 1)
                    most = np.where(size > 0, 1 / np.where(size > 0, size, 1), 1)  # no overlap pays more
                    worst = 1 + self.slack[i] * most
                    columns.append(np.log1p(share * (payoff - 1)[:, None]) - np.log1p(share * (worst - 1)[:, None]))
        return np.concatenate(columns, axis=1)


def ledger_evidence(accounts: dict[str, BetMixture]) -> list[Evidence]:
    """What a ledger takes in: "draft law", and "acceptance", the mean e-value of the other accounts (none: left out)."""
    drafts = accounts["draft follows q"]
    found = [drafts.evidence("draft law", unit="steps")]
    rest = [account for check, account in accounts.items() if check != "draft follows q"]
    if rest:
        largest = max(rest, key=lambda account: account.log_e)
        log_e = log_mean_exp(np.array([account.log_e for account in rest]))
        found.append(Evidence("acceptance", drafts.n, log_e, holder=largest.strongest, unit="steps"))
    return found


def draft_alternatives(p: Floats, q: Floats) -> dict[str, Floats]:
    """Laws `[m, V]` that drafts come from in known faults while q is handed over: its heads, other temperatures, argmax, p."""
    ranking = np.argsort(-q, axis=1, kind="stable")
    before = mass_before(q, ranking)
    found = {f"head of mass {mass:.0%}": _normalised(np.where(before < mass, q, 0)) for mass in HEADS}
    found["argmax"] = np.zeros_like(q)
    np.put_along_axis(found["argmax"], ranking[:, :1], 1.0, axis=1)
    found |= {f"temperature {1 / (1 + tilt):.2f}": _normalised(_power(q, 1 + tilt)) for tilt in TILTS}
    found["target's law"] = p
    found["uniform"] = np.full_like(q, 1 / q.shape[1])
    return found


def residual_alternatives(p: Floats, q: Floats) -> dict[str, Floats]:
    """Laws `[m, V]` that the token after a rejection has in known faults, restricted to the residual's own support.

    Tokens outside that support convict at once (`support_violations`); these bets see what is left.
    """
    left = np.maximum(p - q, 0)
    inside = left > 0
    laws = {"target's law": p, "draft's law": q, "|p - q|": np.abs(p - q), "uniform": np.ones_like(p)}
    laws |= {"softmax of the residual": np.exp(_normalised(left)), "residual squared": left**2}
    laws["argmax of the residual"] = np.where(left == left.max(axis=1, keepdims=True), 1.0, 0.0)
    for tilt in (-0.08, -0.02, 0.02, 0.08):
        laws[f"target at temperature {1 / (1 + tilt):.2f}"] = np.maximum(_normalised(_power(p, 1 + tilt)) - q, 0)
    return {name: _normalised(np.where(inside, law, 0)) for name, law in laws.items()}


def _power(law: Floats, exponent: float) -> Floats:
    return np.asarray(np.where(law > 0, np.where(law > 0, law, 1) ** exponent, 0.0))


def _normalised(weights: Floats) -> Floats:
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0))


def mass_before(law: Floats, ranking: Ints | None = None) -> Floats:
    """The mass before each token `[m, V]`, in token order or in the order of `ranking [m, V]`."""
    if ranking is None:
        return np.asarray(np.pad(np.cumsum(law, axis=1)[:, :-1], ((0, 0), (1, 0))))
    ordered = np.take_along_axis(law, ranking, axis=1)
    starts = np.empty_like(law)
    np.put_along_axis(starts, ranking, np.pad(np.cumsum(ordered, axis=1)[:, :-1], ((0, 0), (1, 0))), axis=1)
    return starts


def assert_steps(steps: Steps, bets: StepBets, false_fail_rate: float, margin: float = 0.0) -> list[Evidence]:
    """Raise AssertionError if a step breaks a support rule or an account proves a fault; else return the evidence.

    The accounts share `false_fail_rate` equally; the support rules are deterministic.
    """
    assert_support(steps, bets.p, bets.q, bets.rule, margin)
    accounts = bets.accounts()
    found = []
    for check, factors in bets.log_factors(steps).items():
        accounts[check].add(factors)
        evidence = accounts[check].evidence(check, unit="steps")
        if evidence.log_e >= log_threshold(false_fail_rate / len(accounts)):
            raise AssertionError(
                f"{check}: log10 e = {evidence.log10_e:.1f} in {len(steps)} steps, held by {evidence.holder!r}"
            )
        found.append(evidence)
    return found


def samples_needed_against_draft_law(
    drawn_from: npt.ArrayLike, bets: StepBets, false_fail_rate: float, false_pass_rate: float
) -> float:
    """Steps after which drafts from laws `drawn_from [m, V]`, while q is handed over, are missed at most this often."""
    laws = np.atleast_2d(np.asarray(drawn_from, float))
    if laws.shape != bets.q.shape:
        raise WrongUse(f"drawn_from must be [m, V] = {bets.q.shape}, got {laws.shape}")
    m, V = laws.shape
    logs = bets.draft.log_factors(np.repeat(np.arange(m), V), np.tile(np.arange(V), m)).reshape(m, V, -1).transpose(0, 2, 1)
    weights = np.full(logs.shape[1], 1 / logs.shape[1])
    return markov_samples(laws[:, None], logs, weights, false_fail_rate / len(bets.names), false_pass_rate)


def smallest_detectable_draft_share(
    n: int, drawn_from: npt.ArrayLike, bets: StepBets, false_fail_rate: float, false_pass_rate: float
) -> float:
    """The smallest share of drafts from `drawn_from [m, V]` instead of q that n steps catch; inf if none is."""
    laws = np.atleast_2d(np.asarray(drawn_from, float))

    def caught(share: float) -> bool:
        blend = (1 - share) * bets.q + share * laws
        return n >= samples_needed_against_draft_law(blend, bets, false_fail_rate, false_pass_rate)

    return smallest_caught(caught)
