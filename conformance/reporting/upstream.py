"""A short text to send upstream: what an engine's authors need of a wrong output that is not known yet, ready to be pasted.

It is Markdown that any tracker shows. Whatever the engine said in it is inert, as in the report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from conformance.diagnosis import cause_of, new_greedy
from conformance.findings import EngineReport, Finding
from conformance.reporting import violation as told
from conformance.reporting.markdown import code, prose
from conformance.reporting.text import clean, evidence, one_in
from conformance.reporting.wording import amount, mode_name, mode_report, name, sentence

MOST_LINES = 45
"""Lines of a reproduction that are told; a script is shorter."""
MOST_PROBES = 8
LAW = "sampled tokens do not follow the target model's probabilities"
TITLES = {
    "LAW-1": LAW,
    "LAW-2": LAW,
    "GREEDY-1": "greedy output is not the target model's",
}
"""What is wrong, by requirement."""


def issue_text(report: EngineReport, finding: Finding) -> str:
    """The text about one finding."""
    return "\n".join(_lines(report, finding)) + "\n"


def _lines(report: EngineReport, finding: Finding) -> Iterable[str]:
    where = code(mode_name(finding.mode))
    family, cause = cause_of(finding)
    yield f"# {prose(name(report))}: in mode {where} {TITLES[finding.requirement]}\n"
    measured = mode_report(report, finding.mode)
    speculation = f" Speculation: {prose(measured.speculation)}." if measured else ""
    yield f"**Models.** Target {prose(report.target)}, draft {prose(report.draft)}.{speculation}"
    yield f"**Environment.** {prose(', '.join(f'{what} {version}' for what, version in report.environment.items()))}\n"
    yield f"**Expected.** {prose(sentence(finding.requirement))}"
    yield f"**Seen.** {prose(finding.summary.partition('. Cause (')[0])}."
    if finding.log10_evidence is not None:
        yield (
            f"Judged: {prose(amount(finding))}; evidence {evidence(finding.log10_evidence)} powers of ten. An engine that does "
            f"what is expected raises such an alarm anywhere in an audit with probability at most {one_in(report.alpha)}."
        )
    greedy = next((one for one in new_greedy(report) if one.mode == finding.mode), None)
    if greedy:
        yield f"**At temperature 0**, where no chance is involved: {prose(greedy.summary)}; {prose(greedy.violations[0])}."
    yield f"**Without speculation.** {_control(report, finding.requirement)}\n"
    if family:
        known = "not narrowed down" if family == "unknown" else f"probably {prose(family)}"
        yield f"**Cause.** {known}: {prose(cause)}. What probes saw:"
        yield from (f"- {prose(place)}" for place in finding.violations[:MOST_PROBES])
        yield ""
    yield from filter(None, (prose(told.accused(finding), 800), prose(told.kinds(finding), 800)))
    if finding.reproduction:
        yield "\n**To see it again**\n"
        yield fenced(finding.reproduction)
    yield f"\nFound by specref, level {prose(report.level)}, seed {report.seed}, {prose(report.started[:10])}."


def _control(report: EngineReport, requirement: str) -> str:
    """What was found of the same requirement where the engine does not speculate."""
    off = {mode.name for mode in report.modes if mode.speculation == "off"}
    same = [one for one in report.findings if one.requirement == requirement and one.mode in off]
    said = [f"{code(mode_name(one.mode))}: {one.verdict} ({prose(amount(one))})" for one in same]
    return "; ".join(said[:3]) or "The engine has no mode without speculation."


def fenced(text: str) -> str:
    """Text as a block of code that nothing in it can end.

    >>> fenced("a ``` b").splitlines()
    ['````', 'a ``` b', '````']
    """
    lines = clean(text).splitlines()[:MOST_LINES]
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *lines, fence])
