"""LAW: do the sampled tokens follow the target's law, one by one (LAW-1) and jointly (LAW-2)?

The statistics decide; here their evidence is read into findings. The bank of bets, the omnibus, chi-square and KS look at each
token given its own history; the stream checks look at what one token says about another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from conformance.findings import REMARKABLE, Finding, Statistic, Verdict
from conformance.levels import AuditSettings
from conformance.protocols import Scorer
from conformance.scoring import laws_at
from conformance.statistics import BetTable, Evidence, FaultBank, Ledger, ModePlan, Threshold, leak, temperature
from conformance.statistics.bounds import tokens_until_numerics_show
from conformance.statistics.dependence import LagCheck
from conformance.statistics.evidence import Floats
from conformance.statistics.ledger import Verdict as Look
from conformance.statistics.trios import smallest_detectable_dependence
from conformance.subject import Subject

JOINT = ("lag", "cross-row", "after a rejection", "bonus", "slot")
"""Checks of the dependence between tokens, or of one place in a round: they decide LAW-2. The others decide LAW-1."""
MOST_NUMBERS = 1 << 20
"""Probabilities of the laws for which it is planned what would be caught."""
DRAFT = "the draft"
NOTHING = "nothing for certain, with so few tokens"
"""What is said of the smallest fault that would have been caught where even the largest might have been missed."""


def law_findings(
    ledger: Ledger, mode: str, look: Look, rows: tuple[Floats, Floats], *, tokens: int, planned: int, leaks_to: str = DRAFT
) -> list[Finding]:
    """LAW-1 and LAW-2 of one mode, from its part of the ledger. rows: a sample of p and q `[C, V]`, for what was detectable;
    leaks_to: what q is the law of, in words.
    """
    evidence = ledger.evidence(mode)
    plan = ledger.plan[mode]
    named = [one.check for one in look.named if one.mode == mode]
    detects = detectable(ledger.judges[mode].bank, plan, ledger.plan.alpha, rows, max(tokens, 1), leaks_to)
    findings = []
    for requirement, checks in (
        ("LAW-1", [one for one in evidence if one.check not in JOINT]),
        ("LAW-2", [one for one in evidence if one.check in JOINT]),
    ):
        if any((check in JOINT) == (requirement == "LAW-2") for check in named):
            verdict = Verdict.VIOLATES
        else:
            verdict = Verdict.CONFORMS if tokens >= planned else Verdict.INCONCLUSIVE
        share = _share(plan, checks)
        findings.append(
            Finding(
                requirement,
                mode,
                verdict,
                _summary(verdict, requirement, tokens, checks, share),
                n=tokens,
                planned=planned,
                alpha=ledger.plan.alpha,
                log10_evidence=share,
                statistics=tuple(_statistic(one) for one in checks),
                detects=detects if requirement == "LAW-1" else dependence(ledger, mode, checks),
            )
        )
    return findings


def numerics_show(subject: Subject, settings: AuditSettings) -> tuple[float, float]:
    """The tokens beyond which the measured differences between lawful ways of computing show: where one context is repeated,
    and where every context is new.
    """
    sigma = subject.tolerance.sigma
    if sigma == 0:  # a table, which can be read in one way only
        return math.inf, math.inf
    laws = sample_of_laws(subject.target, subject, settings)
    return tokens_until_numerics_show(laws, sigma / settings.temperature, settings.alpha)


def sample_of_laws(model: Scorer, subject: Subject, settings: AuditSettings) -> Floats:
    """Laws of one of the subject's models in contexts like those of an audit, `[n, V]`."""
    most = max(1, MOST_NUMBERS // model.vocabulary)
    return laws_at(np.concatenate(model.logits(subject.calibration_sequences()[:4]))[:most], settings.temperature)


def detectable(
    bank: FaultBank, mode: ModePlan, alpha: float, rows: tuple[Floats, Floats], tokens: int, leaks_to: str = DRAFT
) -> str:
    """The smallest leak and temperature error that `tokens` tokens show with probability 99.9%, in words.

    rows: a sample of p and q `[C, V]`; leaks_to: what q is the law of.

    >>> rows = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
    >>> mode = ModePlan.standard("plain", 3_000, weight=0.5, batch=False)
    >>> detectable(FaultBank(), mode, 1e-6, rows, 3_000)
    'a leak to the draft of 0.24, a temperature error of 0.94'
    >>> detectable(FaultBank(), mode, 1e-6, rows, 20)
    'nothing for certain, with so few tokens'
    """
    p, q = rows
    table = BetTable(bank, p, q)
    threshold = Threshold(alpha, mode.weight * mode.checks["bank"])
    found = []
    if (abs(p - q).sum(axis=1) > 1e-6).any():
        size = table.smallest_detectable(leak(p, q), tokens, threshold)
        found += [] if size is None else [f"a leak to {leaks_to} of {size:.2g}"]
    size = table.smallest_detectable(temperature(p), tokens, threshold)
    found += [] if size is None else [f"a temperature error of {size:.2g}"]
    return ", ".join(found) or NOTHING


def dependence(ledger: Ledger, mode: str, checks: Sequence[Evidence]) -> str:
    """The smallest correlation between successive tokens that the lag check had shown with probability 99.9%, in words."""
    lag = next((one for one in checks if one.check == "lag"), None)
    check = ledger.judges[mode].checks.get("lag")
    if lag is None or not isinstance(check, LagCheck) or not lag.n:
        return ""
    plan = ledger.plan[mode]
    accounts = 2 * check.orders * (check.lags + 1)  # the evidence is a mean over kinds of bet, orders and lags
    rate = ledger.plan.alpha * plan.weight * plan.checks["lag"] / accounts
    size = smallest_detectable_dependence(lag.n, rate, 1e-3)
    return f"a correlation of {size:.2g} between a token and the next" if size <= 1 / 3 else NOTHING


def _share(plan: ModePlan, checks: Sequence[Evidence]) -> float | None:
    """log10 of what these checks add to the mode's e-value."""
    terms = [math.log(plan.checks[one.check]) + one.log_e for one in checks if one.check in plan.checks]
    total = float(np.logaddexp.reduce(terms)) / math.log(10) if terms else -math.inf
    return total if math.isfinite(total) else None


def _summary(verdict: Verdict, requirement: str, tokens: int, checks: Sequence[Evidence], share: float | None) -> str:
    what = "each token given its own history" if requirement == "LAW-1" else "what tokens say about each other"
    if verdict is Verdict.VIOLATES:
        strongest = max(checks, key=lambda one: one.log_e)
        holder = f" ({strongest.holder})" if strongest.holder else ""
        return f"{tokens} tokens do not follow the target's law: the evidence lies with {strongest.check}{holder}"
    if verdict is Verdict.CONFORMS and share is not None and share > REMARKABLE:
        strongest = max(checks, key=lambda one: one.log_e)
        holder = f": {strongest.holder}" if strongest.holder else ""
        less = f"which a correct engine shows less than one time in {10**REMARKABLE}"
        about = f"evidence of {share:.1f} powers of ten against it ({strongest.check}{holder}), {less}"
        return f"{tokens} tokens gave no alarm ({what}), but {about}: judge more tokens, with another seed"
    if verdict is Verdict.CONFORMS:
        return f"{tokens} tokens agree with the target's law ({what})"
    return f"only {tokens} tokens were judged ({what}); no alarm so far"


def _statistic(evidence: Evidence) -> Statistic:
    return Statistic(
        evidence.check,
        evidence.n,
        evidence.statistic,
        evidence.degrees,
        evidence.p,
        evidence.log10_e if math.isfinite(evidence.log_e) else None,
        evidence.holder,
        others=evidence.others,
    )
