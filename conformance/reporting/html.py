"""A run as one self-contained page: no network, pictures inline, everything an engine says escaped by the template engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from conformance.findings import JUDGED, UNSETTLED, EngineReport, Finding, Verdict
from conformance.reporting import diff_wording, exhibits, guarantee, text, violation, wording
from conformance.reporting.alike import alike
from conformance.reporting.charts import Chart, charts
from conformance.reporting.compare import MEANINGS, Comparison, Kind

PAGE_LIMIT = 2_000_000
"""Characters on one page. A run of many engines and modes goes with less detail rather than beyond it."""
MOST_VIOLATIONS = 500
"""Kinds of violations that are told where only the least is."""
PICTURES_LIMIT = 1_200_000
"""Characters of drawings on one page; the modes that matter least go without theirs beyond it."""

Pictures = dict[tuple[int, str], list[Chart]]


def page(reports: Sequence[EngineReport]) -> str:
    """The page's HTML, with as much detail as fits."""
    template = _environment().get_template("report.html")
    for detail in _details(reports):
        text = template.render(reports=reports, **detail)
        if len(text) <= PAGE_LIMIT:
            break
    return text


def _details(reports: Sequence[EngineReport]) -> Iterable[dict[str, object]]:
    """What the page is given, with less detail each time: everything; of violations alike only the first; a row for each check
    of the modes in which none of these is; no pictures; no mode."""
    drawn = pictures(reports)
    detail: dict[str, object] = {"pictures": drawn, "whole": True, "brief": False, "most": None}
    less: tuple[dict[str, object], ...] = ({}, {"whole": False}, {"brief": True}, {"pictures": {}}, {"most": MOST_VIOLATIONS})
    for change in less:
        detail = detail | change
        yield detail


def diff_page(comparisons: Sequence[Comparison]) -> str:
    """The page of two compared audits, with as many rows of each table as fit."""
    template = _environment().get_template("diff.html")
    told = (Kind.NEW, Kind.STILL, Kind.LOST, Kind.UNSEEN, Kind.OTHER)
    for most in (5_000, 500, 50):
        text = template.render(comparisons=comparisons, most=most, said=diff_wording, meanings=MEANINGS, told=told)
        if len(text) <= PAGE_LIMIT:
            return text
    return template.render(comparisons=comparisons[:50], most=5, said=diff_wording, meanings=MEANINGS, told=told)


def pictures(reports: Sequence[EngineReport]) -> Pictures:
    """The drawings of each (engine's position, mode), modes with a violation first, until the page is full."""
    modes = [(_violated(report, mode.name), e, m) for e, report in enumerate(reports) for m, mode in enumerate(report.modes)]
    drawn: Pictures = {}
    left = PICTURES_LIMIT
    for _, e, m in sorted(modes, key=lambda entry: not entry[0]):
        if left < 0:
            break
        mode = reports[e].modes[m]
        drawn[e, mode.name] = charts(mode, reports[e].alarm(mode), f"e{e}m{m}")
        left -= sum(len(chart.drawing) for chart in drawn[e, mode.name])
    return drawn


def _violated(report: EngineReport, mode: str) -> bool:
    return any(f.verdict is Verdict.VIOLATES and f.mode == mode for f in report.findings)


def _at(report: EngineReport, requirement: str, mode: str) -> list[Finding]:
    return [f for f in report.findings if f.requirement == requirement and f.mode == mode]


def _requirements(report: EngineReport) -> list[str]:
    return list(dict.fromkeys(finding.requirement for finding in report.findings))


def _judged_in(report: EngineReport, mode: str) -> list[Finding]:
    return [f for f in report.findings if f.mode == mode and f.verdict in (*JUDGED, *UNSETTLED)]


def _judged_outside(report: EngineReport, modes: Sequence[str]) -> dict[str, list[Finding]]:
    """What was judged in other modes than these, by mode."""
    judged = {mode: _judged_in(report, mode) for mode in wording.modes_of(report) if mode not in modes}
    return {mode: findings for mode, findings in judged.items() if findings}


def _kind(verdict: Verdict) -> str:
    """The CSS class of a verdict."""
    return verdict.value.replace(" ", "-")


def _fine(sentence: str) -> str:
    """Typographic apostrophes, and requirement ids that are not broken at their hyphen."""
    return re.sub(r"\b([A-Z]+)-(?=\d)", "\\1\N{NON-BREAKING HYPHEN}", sentence.replace("'", "’"))


def _counts(findings: Iterable[Finding]) -> list[tuple[Verdict, int]]:
    verdicts = [finding.verdict for finding in findings]
    return [(verdict, verdicts.count(verdict)) for verdict in Verdict if verdict in verdicts]


def _reasons(groups: Sequence[tuple[Verdict, str, object]]) -> list[tuple[Verdict, int]]:
    verdicts = [verdict for verdict, _, _ in groups]
    return [(verdict, verdicts.count(verdict)) for verdict in dict.fromkeys(verdicts)]


def _setting(value: object) -> str:
    """A setting's value on one line; nested ones as "name value, name value"."""
    if isinstance(value, dict):
        return ", ".join(f"{text.one_line(key, 80)} {_setting(nested)}" for key, nested in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_setting, value))
    return text.one_line(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("conformance.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        line=text.one_line,
        clean=text.clean,
        count=text.count,
        about=text.about,
        number=text.number,
        probability=text.probability,
        evidence=text.evidence,
        duration=text.duration,
        one_in=text.one_in,
        fine=_fine,
        kind=_kind,
        setting=_setting,
        token=text.token,
        drawing=lambda chart: Markup(chart.drawing),  # made by us from an XML tree: every text in it is escaped
    )
    environment.globals.update(
        wording=wording,
        told=violation,
        alike=alike,
        promise=guarantee,
        Verdict=Verdict,
        at=_at,
        requirements_of=_requirements,
        judged_in=_judged_in,
        judged_outside=_judged_outside,
        violated=_violated,
        counts=_counts,
        reasons=_reasons,
        plural=text.plural,
        exhibits=exhibits.exhibits,
        partings=exhibits.partings,
        state=exhibits.state,
    )
    return environment
