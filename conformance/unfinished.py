"""What a problem kept from being judged, and what is not speculation's fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.findings import Finding, Verdict

Findings = dict[tuple[str, str], Finding]
"""By requirement and mode."""


def mark_unfinished(findings: Findings, requirement: str, mode: str, problem: str) -> None:
    """What a problem kept from being judged gets the verdict that says so; a verdict found before it stands.

    >>> found = {}
    >>> mark_unfinished(found, "LAW-1", "fast", "unsupported: no top_k")
    >>> found["LAW-1", "fast"].verdict
    <Verdict.NOT_EXPOSED: 'not exposed'>
    >>> mark_unfinished(found, "LAW-1", "graphs", "not run: enforce_eager needs a GPU")
    >>> found["LAW-1", "graphs"].verdict
    <Verdict.NOT_RUN: 'not run'>
    """
    known = findings.get((requirement, mode))
    not_here = problem.startswith("not run")
    open_still = (Verdict.INCONCLUSIVE, Verdict.ERROR) if not_here else (Verdict.INCONCLUSIVE,)
    if known is not None and known.verdict not in open_still:
        return
    verdict = Verdict.ERROR
    if not_here:
        verdict = Verdict.NOT_RUN
    elif problem.startswith("unsupported") and known is None:  # it may refuse a mode, but not half of it
        verdict = Verdict.NOT_EXPOSED
    elif problem.startswith("cannot be judged"):
        verdict = Verdict.INCONCLUSIVE
    base = known or Finding(requirement, mode, verdict, problem)
    findings[requirement, mode] = replace(base, verdict=verdict, summary=problem)


def not_speculations(findings: Sequence[Finding], controls: Mapping[str, str]) -> list[Finding]:
    """Mark violations that the control shows too: a fault that is there without speculation is not speculation's.

    controls: by the name under which something is reported, that of the same thing without speculation (its own, of a control).
    """
    seen = {(one.requirement, one.mode) for one in findings if one.verdict is Verdict.VIOLATES}
    return [
        replace(one, not_speculation=True)
        if (one.requirement, one.mode) in seen and (one.requirement, controls.get(one.mode, "")) in seen
        else one
        for one in findings
    ]
