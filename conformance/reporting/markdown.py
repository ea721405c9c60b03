"""A run as Markdown, short enough for a pull-request comment or a job summary.

Whatever an engine says is made inert: characters that Markdown or HTML could read become character references, which
CommonMark never takes for structure; mentions, issue numbers and web addresses are broken up so that no site links them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from conformance.findings import JUDGED, EngineReport, Finding, Verdict
from conformance.reporting import violation as told
from conformance.reporting import wording
from conformance.reporting.alike import alike
from conformance.reporting.exhibits import partings, side_by_side
from conformance.reporting.guarantee import guarantee
from conformance.reporting.text import about, count, duration, evidence, one_line

LIMIT = 60_000
"""Characters; a pull-request comment may hold 65,536."""

_JOINER = "\N{WORD JOINER}"
_STRUCTURE = re.compile(r"[\\`*_{}\[\]<>#|&~$!^]")
_LINKED = re.compile(r"@|(?<=:)//|(?i:(?<=www)\.)|#(?=\d)|(?i:(?<=gh)-(?=\d))")


def prose(text: object, limit: int = 400) -> str:
    """Text from outside, inert in Markdown, on one line.

    >>> prose("a|b <i> `x`")
    'a&#124;b &#60;i&#62; &#96;x&#96;'
    """
    broken = _LINKED.sub(lambda match: match[0][0] + _JOINER + match[0][1:], one_line(text, limit))
    return _STRUCTURE.sub(lambda match: f"&#{ord(match[0])};", broken)


def code(text: object, limit: int = 200) -> str:
    """The same, set as code.

    >>> code("top_k=5")
    '<code>top&#95;k=5</code>'
    """
    return f"<code>{prose(text, limit)}</code>"


def document(reports: Sequence[EngineReport]) -> str:
    """The whole summary. Where it would be too long, the tables of the judged are left out, then whole engines."""
    head = ["## Speculative decoding: conformance report\n"]
    if not reports:
        return head[0] + "\nNothing was audited.\n"
    full = "\n".join([*head, *_verdicts(reports), *(part for report in reports for part in _engine(report, tables=True))])
    if len(full) <= LIMIT:
        return full
    short = "\n".join([*head, *_verdicts(reports), *(part for report in reports for part in _engine(report, tables=False))])
    if len(short) <= LIMIT:
        return short
    lines = [*head, *_verdicts(reports)]
    while sum(len(line) + 1 for line in lines) > LIMIT - 200:
        lines.pop()
    return "\n".join([*lines, "", "Shortened to fit; `report.html` and `report.json` hold everything.\n"])


def _verdicts(reports: Iterable[EngineReport]) -> list[str]:
    return [
        f"- {wording.SYMBOLS[report.verdict]} **{prose(wording.name(report))}** {prose(wording.verdict_sentence(report), 600)}"
        for report in reports
    ]


def _engine(report: EngineReport, *, tables: bool) -> Iterable[str]:
    yield f"\n### {prose(wording.name(report))}\n"
    yield prose(f"Level {report.level} · target {report.target} · draft {report.draft} · {wording.tested(report)}", 600)
    yield ""
    yield from (f"- {about_what}: {prose(sentence, 2000)}" for about_what, sentence in guarantee(report))
    yield from _violations(report)
    if tables:
        yield from _judged(report)
    yield from _not_tested(report)
    yield from (f"\nNote: {prose(note)}" for note in report.notes)


def _violations(report: EngineReport) -> Iterable[str]:
    violations, sent = alike(report), told.to_send(report)
    if violations:
        yield "\n**Violations**\n"
    for same in violations[:20]:
        finding = same.first
        yield f"- {code(finding.requirement)} in {code(wording.mode_name(finding.mode))}: {told.explanation(finding)}"
        yield f"  {prose(finding.summary)}"
        if finding.not_speculation:
            yield "  The same is seen with speculation off: speculation is not the cause."
        if finding.expected:
            yield f"  Known: {prose(finding.expected)}"
        said = [told.accused(finding), told.holder(finding), told.adds(finding)]
        yield from (f"  - {prose(line, 800)}" for line in filter(None, said))
        for one in partings(finding)[:1]:
            yield f"  - {prose(one.where)}: engine {code(side_by_side(one.emitted))}, target {code(side_by_side(one.best))}"
        if shown := told.shown_places(finding):
            yield f"  - {told.places(finding)}:"
            yield from (f"    - {code(place)}" for place in shown)
        if finding.reproduction:
            yield f"  - reproduce: {code(told.reproduction(report.engine, finding), 600)}"
        if finding in sent:
            yield f"  - to send upstream: {code(told.upstream_name(report.engine, finding.mode))}, which lies beside the report"
        if kinds := told.kinds(finding):
            yield f"  - {prose(kinds, 800)}"
        if same.others:
            yield f"  - {prose(same.elsewhere, 800)}"
    if len(violations) > 20:
        yield f"- and {count(len(violations) - 20)} more kinds in `report.html`"


def _judged(report: EngineReport) -> Iterable[str]:
    judged = [f for f in report.findings if f.verdict in (*JUDGED, Verdict.INCONCLUSIVE)]
    if not judged:
        return
    tokens = f"{about(wording.tokens_judged(report))} tokens, {duration(report.seconds)}"
    yield f"\n<details><summary>What was judged ({tokens})</summary>\n"
    yield "| requirement | mode | verdict | judged | statistic | df | p | log10 evidence | smallest fault caught |"
    yield "|---|---|---|--:|--:|--:|--:|--:|---|"
    for finding in judged:
        yield from _rows(finding)
    yield "\n</details>"


def _rows(finding: Finding) -> Iterable[str]:
    verdict = f"{wording.SYMBOLS[finding.verdict]} {finding.verdict}"
    yield _row(
        code(finding.requirement),
        code(wording.mode_name(finding.mode)),
        verdict,
        prose(wording.amount(finding)),
        *("", "", ""),
        evidence(finding.log10_evidence),
        prose(wording.detected(finding, finding)),
    )
    for row in finding.statistics:
        yield _row(
            "", "", prose(wording.statistic_name(row)), *wording.statistic_cells(row), prose(wording.detected(finding, row))
        )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _not_tested(report: EngineReport) -> Iterable[str]:
    groups = wording.not_tested(report)
    if groups:
        yield "\n**Not tested or not finished, and why**\n"
    for verdict, reason, where in groups[:30]:
        places = "; ".join(f"{code(requirement)} ({prose(wording.some_modes(modes))})" for requirement, modes in where)
        yield f"- {wording.SYMBOLS[verdict]} {verdict}: {places}. {prose(reason)}"
    if len(groups) > 30:
        yield f"- and {count(len(groups) - 30)} more reasons in `report.html`"
