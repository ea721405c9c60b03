"""A cause as a finding carries it: in its summary, with the evidence for it among its places."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from conformance.findings import EngineReport, Finding, Verdict

OF_A_ROUND = {"accepted": "accepted drafts", "residual": "tokens that replace a rejected draft", "bonus": "bonus tokens"}
"""The places of a round that are judged each for itself, and their tokens in words."""


@dataclass(frozen=True)
class Diagnosis:
    """family: "control", "numerics", "settings", "models", "rows", "state", "seed", "context", "draft", "rule" or "unknown".
    sentence: for people; of an unknown cause it says what is not ruled out."""

    family: str
    sentence: str
    evidence: tuple[str, ...] = ()

    def added_to(self, finding: Finding) -> Finding:
        """The finding with the cause in its summary, and the evidence for it among its places."""
        summary = f"{finding.summary}. Cause ({self.family}): {self.sentence}"
        return replace(finding, summary=summary, violations=(*finding.violations, *self.evidence))

    def of_mode(self, probed: str, mode: str) -> Diagnosis:
        """The same cause in another mode than the one that was probed."""
        return self if mode == probed else replace(self, evidence=(f"the cause as probed in mode {probed!r}",))


FOLLOWS = "This may be no fault of its own: tokens of requests alone do not follow the law either."
"""Of checks that compare tokens with the law to see something else."""
COMPARED = ("BATCH-1", "SEED-3")
OTHERS_CAUSE = ("rows", "state", "seed", "unknown")
"""Causes that those checks would see, or that nobody knows."""


def with_what_follows(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with a remark at violations that a wrong law of the same mode explains."""
    some = list(findings)
    laws = [one for one in some if one.requirement in ("LAW-1", "LAW-2") and one.verdict is Verdict.VIOLATES]
    explained = {one.mode for one in laws if cause_of(one)[0] not in ("", *OTHERS_CAUSE)}

    def told(one: Finding) -> Finding:
        follows = one.requirement in COMPARED and one.verdict is Verdict.VIOLATES and one.mode in explained
        return replace(one, summary=f"{one.summary}. {FOLLOWS}") if follows else one

    return [told(one) for one in some]


def cause_of(finding: Finding) -> tuple[str, str]:
    """The family and the sentence that a diagnosis added to a finding; both empty where none did.

    >>> finding = Finding("LAW-1", "fast", Verdict.VIOLATES, "tokens do not follow the law")
    >>> cause_of(Diagnosis("rows", "a request alone conforms").added_to(finding))
    ('rows', 'a request alone conforms')
    """
    found = re.search(r"\. Cause \((\w+)\): (.*)", finding.summary, re.DOTALL)
    return (found[1], found[2]) if found else ("", "")


def new_laws(report: EngineReport) -> list[Finding]:
    """Wrong laws in plain cases that are not known yet: of a mode LAW-1, else LAW-2."""
    modes = {mode.name for mode in report.modes}
    first: dict[str, Finding] = {}
    for law in ("LAW-1", "LAW-2"):
        for one in report.findings:
            if one.requirement == law and one.mode in modes and one.verdict is Verdict.VIOLATES:
                first.setdefault(one.mode, one)
    return [one for one in first.values() if not one.expected]


def new_greedy(report: EngineReport) -> list[Finding]:
    """Wrong greedy outputs that are not known yet."""
    found = [one for one in report.findings if one.requirement == "GREEDY-1" and one.verdict is Verdict.VIOLATES]
    return [one for one in found if one.violations and not one.expected]


def first_of_each_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Of findings with the same cause the first."""
    first: dict[tuple[str, str], Finding] = {}
    for one in findings:
        first.setdefault(cause_of(one), one)
    return list(first.values())
