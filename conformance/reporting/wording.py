"""What a report says in words: the verdict of an engine, what was judged, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from conformance.diagnosis import FOLLOWS
from conformance.findings import JUDGED, REMARKABLE, EngineReport, Finding, ModeReport, Statistic, Verdict, worst
from conformance.reporting.text import about, count, evidence, number, one_line, plural, probability
from conformance.reporting.violation import family
from conformance.requirements import BY_ID

SYMBOLS = {
    Verdict.CONFORMS: "✓",
    Verdict.VIOLATES: "✗",
    Verdict.LOSSY_AS_DECLARED: "≈",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_PROMISED: "–",
    Verdict.NOT_EXPOSED: "–",
    Verdict.NOT_RUN: "○",
    Verdict.ERROR: "!",
}
"""One character per verdict; always shown beside the words."""

MEANINGS = {
    Verdict.CONFORMS: "The planned amount was judged without an alarm.",
    Verdict.VIOLATES: "Proven wrong, with evidence.",
    Verdict.LOSSY_AS_DECLARED: "The mode says that it changes the output, and the change was measured.",
    Verdict.INCONCLUSIVE: "Less was judged than planned, without an alarm: this proves nothing yet.",
    Verdict.NOT_PROMISED: "The engine does not claim this, so it cannot break it.",
    Verdict.NOT_EXPOSED: "The engine offers nothing that the check could look at.",
    Verdict.NOT_RUN: "Not tried: something that it needs was missing.",
    Verdict.ERROR: "The engine crashed, hung or answered nonsense. This never counts as conforming.",
}


def sentence(requirement: str) -> str:
    """What the requirement asks, from the catalogue; empty for one that the catalogue does not hold."""
    return BY_ID[requirement].sentence if requirement in BY_ID else ""


def name(report: EngineReport) -> str:
    """Engine and version on one line."""
    return f"{one_line(report.engine, 80)} {one_line(report.version, 60)}".strip()


def mode_name(mode: str) -> str:
    """A mode's name; requirements that hold for the engine as a whole have none."""
    return one_line(mode, 60) or "whole engine"


def with_verdict(report: EngineReport, *verdicts: Verdict) -> list[Finding]:
    """The report's findings with one of these verdicts, in order."""
    return [finding for finding in report.findings if finding.verdict in verdicts]


def tokens_judged(report: EngineReport) -> int:
    """How many tokens were judged, over all modes."""
    return sum(mode.tokens_judged for mode in report.modes)


def modes_of(report: EngineReport) -> list[str]:
    """Every mode that is reported or has a finding, in the order in which they appear."""
    names = [mode.name for mode in report.modes] + [finding.mode for finding in report.findings]
    return list(dict.fromkeys(names))


def mode_report(report: EngineReport, mode: str) -> ModeReport | None:
    """What was measured in a mode, if anything was."""
    return next((measured for measured in report.modes if measured.name == mode), None)


def mode_verdict(report: EngineReport, mode: str) -> Verdict:
    """The verdict that decides in one mode."""
    return worst(finding.verdict for finding in report.findings if finding.mode == mode)


def some_modes(modes: list[str], limit: int = 6) -> str:
    """The modes' names in a row; of many, the first and how many more.

    >>> some_modes(["a", "b", "c", "d"], 2)
    'a · b and 2 more'
    """
    more = f" and {len(modes) - limit} more" if len(modes) > limit else ""
    return " · ".join(modes[:limit]) + more


def look_again(report: EngineReport) -> list[Finding]:
    """What conforms, with more evidence against it than one of a thousand correct engines shows; the most first."""
    some = [one for one in with_verdict(report, Verdict.CONFORMS) if (one.log10_evidence or 0) > REMARKABLE]
    return sorted(some, key=lambda one: -(one.log10_evidence or 0))


def verdict_sentence(report: EngineReport) -> str:
    """The verdict in one sentence, without the engine's name: it follows it on the page."""
    verdict, judged = report.verdict, with_verdict(report, *JUDGED)
    if verdict is Verdict.VIOLATES:
        return _violates(report)
    if verdict is Verdict.ERROR:
        rest = f"; what else was judged ({plural(len(judged), 'check')}) raised no alarm" if judged else ""
        failed = with_verdict(report, verdict)
        first = one_line(min(failed, key=lambda one: one.summary.startswith("not judged, ")).summary, 200).rstrip(".")
        return f"could not be judged: {plural(len(failed), 'check')} ended in an error{rest}. The first: {first}."
    if verdict is Verdict.INCONCLUSIVE:
        return "is undecided: less was judged than planned, and so far without an alarm."
    if verdict is Verdict.LOSSY_AS_DECLARED:
        modes = _listed(f"“{mode_name(f.mode)}”" for f in with_verdict(report, verdict))
        rest = "; everything else that was judged conforms" if with_verdict(report, Verdict.CONFORMS) else ""
        return f"is lossy as declared: it changes the output in {modes}, as its authors say{rest}."
    if verdict is Verdict.CONFORMS and look_again(report):
        return "conforms: no alarm went off in what was judged, but there is something to look at again."
    if verdict is Verdict.CONFORMS:
        return "conforms: in everything that was judged, no difference from the target model was found."
    if verdict is Verdict.NOT_RUN:
        return f"was not run{_reason(report)}."
    return f"was not judged: nothing that the checks look at is {'promised' if verdict is Verdict.NOT_PROMISED else 'exposed'}."


def _violates(report: EngineReport) -> str:
    every = with_verdict(report, Verdict.VIOLATES)
    of_their_own = [one for one in every if FOLLOWS not in one.summary]
    violations = sorted(of_their_own, key=lambda one: family(one.requirement) not in ("LAW", "GREEDY"))
    ids = list(dict.fromkeys(f.requirement for f in violations))
    modes = _listed(f"“{mode_name(f.mode)}”" for f in violations)
    changes_output = any(family(f.requirement) in ("LAW", "GREEDY") for f in violations)
    claim = "its output is not the target model's" if changes_output else "it does not do what is required"
    said = f"violates {plural(len(ids), 'requirement')} ({_listed(one_line(i, 40) for i in ids)}) in {modes}: {claim}"
    if all(f.not_speculation for f in violations):
        said += ". The same is seen with speculation off, so speculation is not the cause"
    if all(f.expected for f in every):
        said += ". All of this is known"
    return f"{said}."


def _reason(report: EngineReport) -> str:
    reasons = {one_line(f.summary, 200).rstrip(".") for f in with_verdict(report, Verdict.NOT_RUN) if f.summary}
    return f": {reasons.pop()}" if len(reasons) == 1 else ""


def _listed(words: Iterable[str], limit: int = 4) -> str:
    unique = list(dict.fromkeys(words))
    shown = unique[:limit] if len(unique) > limit + 1 else unique
    if len(shown) < len(unique):
        return ", ".join(shown) + f" and {len(unique) - len(shown)} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else ""


def tested(report: EngineReport) -> str:
    """How much was judged, in one sentence."""
    judged = with_verdict(report, *JUDGED)
    if not judged:
        return "Nothing was judged."
    requirements, modes = {f.requirement for f in judged}, {f.mode for f in judged}
    tokens = tokens_judged(report)
    amount = f", on {about(tokens)} tokens" if tokens else ""
    where = f"{plural(len(requirements), 'requirement')} in {plural(len(modes), 'mode')}"
    return f"{where}: {plural(len(judged), 'result')}{amount}."


def not_tested(report: EngineReport) -> list[tuple[Verdict, str, list[tuple[str, list[str]]]]]:
    """What was not tested: (verdict, reason, [(requirement, modes)]), equal reasons together."""
    order = (Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.NOT_RUN, Verdict.NOT_EXPOSED, Verdict.NOT_PROMISED)

    def key(finding: Finding) -> tuple[int, str]:
        return order.index(finding.verdict), one_line(finding.summary)

    groups = []
    for (rank, reason), members in groupby(sorted(with_verdict(report, *order), key=key), key=key):
        where: dict[str, list[str]] = {}
        for finding in members:
            where.setdefault(one_line(finding.requirement, 40), []).append(mode_name(finding.mode))
        groups.append((order[rank], reason or MEANINGS[order[rank]], list(where.items())))
    return groups


def amount(finding: Finding) -> str:
    """How much was judged, out of how much was planned.

    >>> amount(Finding("LAW-1", "", Verdict.INCONCLUSIVE, "", n=1, planned=1_024))
    '1 of 1,024 tokens'
    >>> amount(Finding("LOUD-2", "", Verdict.CONFORMS, "", n=1, unit="modes"))
    '1 mode'
    """
    if not finding.n and not finding.planned:
        return "–"
    unit = one_line(finding.unit, 30)
    planned = f" of {count(finding.planned)}" if finding.planned > finding.n else ""
    if finding.n == 1 and not planned:
        unit = unit.removesuffix("s")
    return f"{count(finding.n)}{planned} {unit}"


def detected(finding: Finding, row: Finding | Statistic) -> str:
    """The smallest fault that a finding, or a statistic of it, would have caught, where the planned n was reached."""
    return one_line(row.detects, 240) if finding.verdict in (Verdict.CONFORMS, Verdict.LOSSY_AS_DECLARED) else ""


def statistic_cells(row: Statistic) -> tuple[str, str, str, str, str]:
    """n, statistic, degrees of freedom, p and log10 evidence as every table shows them."""
    df = "–" if row.degrees_of_freedom is None else count(row.degrees_of_freedom)
    return count(row.n), number(row.statistic), df, probability(row.p), evidence(row.log10_evidence)


def statistic_name(row: Statistic) -> str:
    """The check's name, with the bet that holds most of its wealth."""
    return f"{one_line(row.name, 60)}, largest bet: {one_line(row.holder, 60)}" if row.holder else one_line(row.name, 60)
