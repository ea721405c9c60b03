"""Violations that are one to the reader: told whole once, with the modes in which the others were seen.

An engine with one fault and a hundred modes has hundreds of violations. In a row they would hide the few that differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.diagnosis import cause_of
from conformance.findings import EngineReport, Finding
from conformance.reporting import wording
from conformance.reporting.text import plural
from conformance.reporting.violation import suspected, to_send, violations


@dataclass(frozen=True)
class Alike:
    """Violations of one requirement for one reason: the first is told whole."""

    first: Finding
    others: tuple[Finding, ...]

    @property
    def elsewhere(self) -> str:
        """Where the others were seen; empty where there are none.

        >>> from conformance.findings import Verdict
        >>> first, *others = (Finding("LAW-1", mode, Verdict.VIOLATES, "wrong") for mode in "abcdefghi")
        >>> Alike(first, tuple(others)).elsewhere
        'The same in 8 more modes: b · c · d · e · f · g and 2 more'
        """
        modes = list(dict.fromkeys(wording.mode_name(one.mode) for one in self.others))
        return f"The same in {plural(len(modes), 'more mode')}: {wording.some_modes(modes)}" if modes else ""


def alike(report: EngineReport) -> list[Alike]:
    """The report's violations, those of one requirement for one reason together: what is new, then what is known, each in the
    order of the families. The first of each is one that a text to send is written about, where there is one."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in sorted(violations(report), key=lambda one: bool(one.expected)):
        groups.setdefault((one.requirement, one.not_speculation, *_reason(one)), []).append(one)
    sent = to_send(report)
    ordered = (sorted(group, key=lambda one: one not in sent) for group in groups.values())
    return [Alike(first, tuple(others)) for first, *others in ordered]


def _reason(finding: Finding) -> tuple[str, ...]:
    """What is known of a violation; else its cause and the known fault that it resembles."""
    if finding.expected:
        return (finding.expected,)
    resembled = suspected(finding)
    return (*cause_of(finding), resembled.words if resembled else "")
