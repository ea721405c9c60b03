"""Known violations of a pinned engine, kept in a file with their reasons, so that a run fails only for what is new.

    [[violation]]
    engine = "some-engine"
    version = "1.2.3"
    requirement = "LAW-1"
    mode = "draft model"
    reason = "temperature does not reach verification, upstream issue 123"
    n = 2000            # samples at which it is seen with probability 99.9%
    expires = 2027-01-31  # optional: after this day it excuses nothing

A violation that is listed does not fail the run, until its entry expires. One that is listed and not seen, by a run of n
samples or more, does: the engine was mended, or the check went blind, and either way the file is wrong. With fewer samples it
is "not tested at this level".
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from conformance.findings import EngineReport, Finding, Verdict
from conformance.problems import UsageProblem

FIELDS = {"engine": str, "version": str, "requirement": str, "mode": str, "reason": str, "n": int}


@dataclass(frozen=True)
class Expected:
    """One known violation. n: samples at which it is seen with probability 99.9%. expires: the last day on which it excuses."""

    engine: str
    version: str
    requirement: str
    mode: str
    reason: str
    n: int
    expires: date | None = None

    def is_about(self, report: EngineReport, finding: Finding) -> bool:
        """Whether this violation is the one of `finding`."""
        mine = (self.engine, self.version, self.requirement, self.mode)
        return mine == (report.engine, report.version, finding.requirement, finding.mode)


def read_expected(path: Path) -> list[Expected]:
    """The known violations in a file. Raises UsageProblem naming the entry and the field that is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageProblem(f"cannot read known violations from {path}: {error}") from error
    entries = document.pop("violation", [])
    if document or not isinstance(entries, list):
        raise UsageProblem(f"{path} may hold [[violation]] tables only, not {', '.join(document) or 'violation = ...'}")
    return [_expected(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _expected(path: Path, number: int, entry: object) -> Expected:
    if not isinstance(entry, dict):
        raise UsageProblem(f"violation {number} in {path} is {entry!r}; write it as a [[violation]] table")
    for name, kind in FIELDS.items():
        if type(entry.get(name)) is not kind:
            what = "a whole number" if kind is int else "a text"
            raise UsageProblem(f"violation {number} in {path}: {name} must be {what}, got {entry.get(name)!r}")
    if "expires" in entry and type(entry["expires"]) is not date:
        raise UsageProblem(f"violation {number} in {path}: expires must be a date, as 2027-01-31, got {entry['expires']!r}")
    known = (*FIELDS, "expires")
    unknown = set(entry) - set(known)
    if unknown:
        raise UsageProblem(
            f"violation {number} in {path}: nothing is called {sorted(unknown)[0]!r}; there are {', '.join(known)}"
        )
    if entry["n"] < 1:
        raise UsageProblem(f"violation {number} in {path}: n must be 1 or more, got {entry['n']}")
    return Expected(**entry)


def mark_expected(reports: Sequence[EngineReport], known: Sequence[Expected]) -> list[EngineReport]:
    """The reports with each finding marked that a known violation is about, and a note for each that is about none."""
    return [
        replace(
            report,
            findings=tuple(_marked(report, finding, known) for finding in report.findings),
            notes=(*report.notes, *_about_nothing(report, known)),
        )
        for report in reports
    ]


def _about_nothing(report: EngineReport, known: Sequence[Expected]) -> list[str]:
    of_engine = [one for one in known if (one.engine, one.version) == (report.engine, report.version)]
    return [
        f"A known violation is about {one.requirement} in mode {one.mode!r}, which this audit does not have: correct its entry."
        for one in of_engine
        if not any(one.is_about(report, finding) for finding in report.findings)
    ]


def _marked(report: EngineReport, finding: Finding, known: Sequence[Expected]) -> Finding:
    for one in known:
        if one.is_about(report, finding):
            if finding.verdict is Verdict.VIOLATES and one.expires is not None and _today() > one.expires:
                said = (
                    f"known ({one.reason}), but its entry expired on {one.expires}: mend the engine, or look again and renew it"
                )
                return replace(finding, summary=f"{said}. {finding.summary}")
            if finding.verdict is Verdict.VIOLATES:
                return replace(finding, expected=one.reason)
            if finding.n < one.n:
                return replace(finding, expected=f"not tested at this level (needs {one.n:,}): {one.reason}")
            summary = f"a known violation was not seen in {finding.n:,} samples ({one.reason}); is it mended? {finding.summary}"
            return replace(finding, unseen=True, summary=summary)
    return finding


def _today() -> date:
    return datetime.now(UTC).date()
