"""LAW: do the sampled tokens follow the target's law, one by one (LAW-1) and jointly (LAW-2)?

The statistics decide; here their evidence is read into findings. The bank of bets, the omnibus, chi-square and KS look at each
token given its own history; the stream checks look at what one token says about another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from conformance.findings import Finding, Statistic, Verdict
from conformance.statistics import BetTable, Evidence, Ledger, ModePlan, Threshold, leak, temperature
from conformance.statistics.evidence import Floats
from conformance.statistics.ledger import Verdict as Look

JOINT = ("lag", "cross-row", "after a rejection", "bonus", "slot")
"""Checks of the dependence between tokens, or of one place in a round: they decide LAW-2. The others decide LAW-1."""


def law_findings(
    ledger: Ledger, mode: str, look: Look, rows: tuple[Floats, Floats], *, tokens: int, planned: int
) -> list[Finding]:
    """LAW-1 and LAW-2 of one mode, from its part of the ledger. rows: a sample of p and q `[C, V]`, for what was detectable."""
    evidence = ledger.evidence(mode)
    plan = ledger.plan[mode]
    named = [one.check for one in look.named if one.mode == mode]
    joint = bool(named) and all(check in JOINT for check in named)
    detects = detectable(ledger, mode, rows, max(tokens, 1))
    findings = []
    for requirement, checks in (
        ("LAW-1", [one for one in evidence if one.check not in JOINT]),
        ("LAW-2", [one for one in evidence if one.check in JOINT]),
    ):
        if named and (requirement == "LAW-2") == joint:
            verdict = Verdict.VIOLATES
        else:
            verdict = Verdict.CONFORMS if tokens >= planned else Verdict.INCONCLUSIVE
        findings.append(
            Finding(
                requirement,
                mode,
                verdict,
                _summary(verdict, requirement, tokens, checks),
                n=tokens,
                planned=planned,
                alpha=ledger.plan.alpha,
                log10_evidence=_share(plan, checks),
                statistics=tuple(_statistic(one) for one in checks),
                detects=detects if requirement == "LAW-1" else "",
            )
        )
    return findings


def detectable(ledger: Ledger, mode: str, rows: tuple[Floats, Floats], tokens: int) -> str:
    """The smallest leak and temperature error that `tokens` tokens would have shown with probability 99.9%, in words."""
    plan = ledger.plan[mode]
    p, q = rows
    table = BetTable(ledger.judges[mode].bank, p, q)
    threshold = Threshold(ledger.plan.alpha, plan.weight * plan.checks["bank"])
    found = []
    if (abs(p - q).sum(axis=1) > 1e-6).any():
        size = table.smallest_detectable(leak(p, q), tokens, threshold)
        found.append("no leak to the draft" if size is None else f"a leak to the draft of {size:.2g}")
    size = table.smallest_detectable(temperature(p), tokens, threshold)
    found.append("no temperature error" if size is None else f"a temperature error of {size:.2g}")
    return ", ".join(found)


def _share(plan: ModePlan, checks: Sequence[Evidence]) -> float | None:
    """log10 of what these checks add to the mode's e-value."""
    terms = [math.log(plan.checks[one.check]) + one.log_e for one in checks if one.check in plan.checks]
    total = float(np.logaddexp.reduce(terms)) / math.log(10) if terms else -math.inf
    return total if math.isfinite(total) else None


def _summary(verdict: Verdict, requirement: str, tokens: int, checks: Sequence[Evidence]) -> str:
    what = "each token given its own history" if requirement == "LAW-1" else "what tokens say about each other"
    if verdict is Verdict.VIOLATES:
        strongest = max(checks, key=lambda one: one.log_e)
        holder = f" ({strongest.holder})" if strongest.holder else ""
        return f"{tokens} tokens do not follow the target's law: the evidence lies with {strongest.check}{holder}"
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
    )
