"""One test for each requirement in each mode of the engine: what the audit found about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.findings import JUDGED, NOT_TESTED, UNSETTLED, EngineReport, Finding, Verdict, from_json
from conformance.plugin import REPORTS
from conformance.reporting import wording
from conformance.reporting.junit import details
from conformance.reporting.text import one_line
from conformance.reporting.violation import explanation


class Violated(Exception):
    """The engine violates a requirement."""


class NotJudged(Exception):
    """The audit ended without a verdict, which is never taken for conforming."""


class Audit(pytest.File):
    """The findings of the session's audit."""

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each finding, and one that fails if nothing at all was judged: skips alone would look like success."""
        for report in from_json(self.config.stash[REPORTS]):
            for finding in (*report.findings, *_nothing_judged(report)):
                name = f"{one_line(finding.requirement)}[{wording.mode_name(finding.mode)}]"
                yield Requirement.from_parent(self, name=name, finding=finding)


def _nothing_judged(report: EngineReport) -> tuple[Finding, ...]:
    if any(finding.verdict in (*JUDGED, *UNSETTLED) for finding in report.findings):
        return ()
    summary = f"nothing of {wording.name(report)} was judged; the skipped tests say why"
    return (Finding("AUDIT", "all", Verdict.INCONCLUSIVE, summary),)


class Requirement(pytest.Item):
    """One requirement in one mode."""

    def __init__(self, *, finding: Finding, **rest: Any) -> None:
        super().__init__(**rest)
        self.finding = finding
        if finding.expected and finding.verdict not in NOT_TESTED:
            # Not strict: a known violation that had to be seen, and was not, fails in `runtest`, with its own words.
            known = NotJudged if finding.verdict is Verdict.ERROR else Violated
            self.add_marker(pytest.mark.xfail(reason=finding.expected, raises=known, strict=False))

    def runtest(self) -> None:
        """Say what was found. Raises what its verdict comes to."""
        finding = self.finding
        if finding.verdict in NOT_TESTED:
            pytest.skip(f"{finding.verdict}: {one_line(finding.summary, 2000) or wording.MEANINGS[finding.verdict]}")
        if finding.verdict in UNSETTLED:
            raise NotJudged(finding.verdict)
        if finding.verdict is Verdict.VIOLATES or finding.unseen:
            raise Violated(finding.verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The finding's words, in place of a traceback."""
        if not isinstance(excinfo.value, (Violated, NotJudged)):
            return super().repr_failure(excinfo, style)
        explained = explanation(self.finding) if self.finding.verdict is Verdict.VIOLATES else ""
        verdict = "a known violation was not seen" if self.finding.unseen else self.finding.verdict
        return "\n".join(filter(None, [f"{verdict}: {details(self.finding)}", explained]))

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it belongs, for reports."""
        return self.path, None, self.name
