"""A run as JUnit XML: one suite per engine, one case per requirement and mode, for the test views of CI systems."""

from __future__ import annotations

import io
from collections.abc import Sequence

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from conformance.findings import NOT_TESTED, UNSETTLED, EngineReport, Finding, Verdict
from conformance.reporting import wording
from conformance.reporting.text import clean, evidence, one_line


def document(reports: Sequence[EngineReport]) -> str:
    """The XML text. Violations are failures, and so is a known one that was not seen; errors and the inconclusive are errors;
    what is known, or was not tested, is skipped."""
    xml = JUnitXml("specref")
    for report in reports:
        xml.add_testsuite(_suite(report))
    xml.update_statistics()
    for suite in xml:  # the audit's own time: single requirements have none; suites of one name were made one
        suite.time = round(sum(report.seconds for report in reports if wording.name(report) == suite.name), 3)
    xml.time = round(sum(report.seconds for report in reports), 3)
    buffer = io.BytesIO()
    xml.write(buffer, pretty=True)
    return buffer.getvalue().decode()


def _suite(report: EngineReport) -> TestSuite:
    suite = TestSuite(wording.name(report))
    suite.timestamp = one_line(report.started)
    settings = {name: getattr(report, name) for name in ("level", "alpha", "seed", "target", "draft")}
    for key, value in {**settings, "log10 evidence": evidence(report.log10_evidence), **report.environment}.items():
        suite.add_property(one_line(key), one_line(value))
    suite.add_testcases([_case(finding, wording.name(report)) for finding in report.findings])
    return suite


def _case(finding: Finding, engine: str) -> TestCase:
    case = TestCase(f"{one_line(finding.requirement)} [{wording.mode_name(finding.mode)}]", engine)
    summary = one_line(finding.summary, 2000) or wording.MEANINGS[finding.verdict]
    if finding.unseen:
        case.result = [_told(Failure(summary, "not seen"), finding)]
    elif finding.expected and finding.verdict in (Verdict.VIOLATES, Verdict.ERROR):
        case.result = [_told(Skipped(f"known: {one_line(finding.expected, 400)}. {summary}"), finding)]
    elif finding.verdict is Verdict.VIOLATES:
        case.result = [_told(Failure(summary, finding.verdict), finding)]
    elif finding.verdict in UNSETTLED:
        case.result = [_told(Error(summary, finding.verdict), finding)]
    elif finding.verdict in NOT_TESTED:
        case.result = [Skipped(f"{finding.verdict}: {summary}")]
    else:
        case.system_out = details(finding)
    return case


def _told(result: Failure | Error | Skipped, finding: Finding) -> Failure | Error | Skipped:
    result.text = details(finding)
    return result


def details(finding: Finding) -> str:
    """Everything that a finding holds, as plain lines."""
    lines = [clean(finding.summary), f"judged: {wording.amount(finding)}"]
    if finding.log10_evidence is not None:
        lines.append(f"log10 evidence: {evidence(finding.log10_evidence)}")
    if wording.detected(finding, finding):
        lines.append(f"smallest fault caught: {wording.detected(finding, finding)}")
    if finding.not_speculation:
        lines.append("The same is seen with speculation off.")
    lines += [f"at: {one_line(place)}" for place in finding.violations]
    if finding.reproduction:
        lines.append(f"reproduce: {clean(finding.reproduction)}")
    return "\n".join(filter(None, lines))
