"""What a report says of a violation: its family in plain words, the evidence, whom it accuses, and public reports like it."""

from __future__ import annotations

import math
import re

from conformance.diagnosis import FOLLOWS, OF_A_ROUND, cause_of, first_of_each_cause, new_greedy, new_laws
from conformance.findings import EngineReport, Finding, Statistic, Verdict
from conformance.reporting.suspects import Suspect, suspect
from conformance.reporting.text import count, evidence, one_line, token
from conformance.requirements import BY_ID

FAMILIES = {
    "LAW": "The engine does not write what the target alone would write: some words come too often, others too rarely.",
    "GREEDY": "At temperature 0 the engine emitted a token that is not the target model's first choice.",
    "TREE": "The tree of drafts is not checked as the model would read each of its branches alone.",
    "KV": "After a round the cache does not hold what the model would have computed from the accepted text.",
    "DRAFT": "The drafts do not follow the probabilities that the engine claims for them, so no verification can be right.",
    "STOP": "The engine goes on where it should have stopped, or stops where it should have gone on.",
    "LOUD": "A setting was not obeyed in every token, without a word. Where GREEDY-1 is violated too, both may have one cause.",
    "EDGE": "An unusual but legal input has no defined outcome.",
    "SEED": "Random numbers that should be repeatable, or independent of each other, are not.",
    "ACCEPT": "The share of accepted drafts is not what the declared rule gives.",
    "BATCH": "What one request gets depends on the other requests beside it.",
    "LOGPROB": "The log-probabilities that the engine returns are not the target model's.",
    "GRAMMAR": "After a round the grammar is in a state that the accepted text does not lead to.",
}
"""What a violation of each family of requirements means, for a reader who does not know the requirement."""


def family(requirement: str) -> str:
    """The family that a requirement's id names.

    >>> family("LAW-1")
    'LAW'
    """
    return requirement.partition("-")[0]


def violations(report: EngineReport) -> list[Finding]:
    """The report's violations, in the order of the families; a mode's together within each."""
    return sorted((f for f in report.findings if f.verdict is Verdict.VIOLATES), key=family_place)


def family_place(finding: Finding) -> int:
    """The place of a finding's family."""
    named = family(finding.requirement)
    return list(FAMILIES).index(named) if named in FAMILIES else len(FAMILIES)


def explanation(finding: Finding) -> str:
    """What a violation means, in plain words."""
    return FAMILIES.get(family(finding.requirement), "The engine does not do what this requirement asks.")


def holder(finding: Finding) -> str:
    """Which check and which bet of it hold most of a violation's evidence; empty where no bets decided."""
    best = strongest(finding)
    if best is None:
        return ""
    said = (
        f"Most evidence lies with the check “{one_line(best.name, 60)}”, and there with the bet “{one_line(best.holder, 80)}”"
    )
    return f"{said}: {evidence(best.log10_evidence)} powers of ten after {count(best.n)} {one_line(finding.unit, 30)}."


def strongest(finding: Finding) -> Statistic | None:
    """The check with most of the evidence, among those that name a bet."""
    held = [row for row in finding.statistics if row.log10_evidence is not None and row.holder]
    return max(held, key=lambda row: row.log10_evidence or -math.inf, default=None)


def adds(finding: Finding) -> str:
    """The tokens and contexts that add most to the evidence, in one line; empty where none is known."""
    said = []
    for kind, before in (("token", "Tokens that add most"), ("context", "Contexts that add most")):
        rows = [f"“{token(row.text, 24)}” {evidence(row.log10)}" for row in finding.contributions if row.kind == kind][:3]
        said += [f"{before}: {', '.join(rows)}."] if rows else []
    return " ".join(said)


NOT_A_RULE = ("context", "rows", "state", "models", "numerics")
"""Causes that no bet of the bank stands for: the one that fits best would name another."""


def suspected(finding: Finding) -> Suspect | None:
    """The fault known by name that the bet with most of the evidence stands for; None where something else explains it."""
    best = strongest(finding)
    if best is None or cause_of(finding)[0] in NOT_A_RULE or FOLLOWS in finding.summary:
        return None
    return suspect(best.holder)


def accused(finding: Finding) -> str:
    """What the bet that holds most of a violation's evidence stands for; empty where it is no fault known by name."""
    best, found = strongest(finding), suspected(finding)
    if best is None or found is None:
        return ""
    where = f"In {OF_A_ROUND[best.name]} the" if best.name in OF_A_ROUND else "The"
    said = f"{where} engine behaves as if {found.words}. Of the known faults this fits best"
    others = [other.words for other in map(suspect, best.others) if other][:3]
    if others:
        return f"{said}, but the evidence hardly tells it from these: {'; or '.join(others)}."
    return f"{said}; another with much the same law shows alike, so begin there, and look further."


def kinds(finding: Finding) -> str:
    """Public reports of the fault that the evidence names, then faults that break the same requirement and reports of those."""
    found = suspected(finding)
    said = [f"Public reports of what the evidence names: {', '.join(found.reports)}."] if found and found.reports else []
    if finding.requirement in BY_ID:
        entry = BY_ID[finding.requirement]
        said += [f"Faults that break this requirement: {'; '.join(entry.kills)}."] if entry.kills else []
        said += [f"Public reports of such: {', '.join(entry.reports)}."] if entry.reports else []
    return " ".join(said)


SCRIPT = "The smallest case"
"""How a script begins, in a comment: what an engine is called must not end up in what is run."""


def script_name(engine: str, finding: Finding) -> str:
    """The file, beside the report, of the script that shows a violation.

    >>> script_name("my engine", Finding("LAW-1", "draft model, k=4", Verdict.VIOLATES, "wrong"))
    'smallest-my-engine-draft-model-k-4.py'
    >>> script_name("my engine", Finding("GREEDY-1", "fast", Verdict.VIOLATES, "wrong"))
    'smallest-greedy-my-engine-fast.py'
    """
    greedy = "greedy-" if finding.requirement == "GREEDY-1" else ""
    return f"smallest-{greedy}{_slug(engine, finding.mode)}.py"


def upstream_name(engine: str, mode: str) -> str:
    """The file, beside the report, of the text about a mode's violation that can be sent upstream.

    >>> upstream_name("my engine", "draft model, k=4")
    'upstream-my-engine-draft-model-k-4.md'
    """
    return f"upstream-{_slug(engine, mode)}.md"


def _slug(engine: str, mode: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{engine} {mode}".lower()).strip("-")[:80]


def to_send(report: EngineReport) -> list[Finding]:
    """The findings that a text is written about: of wrong laws that are not known, nor seen without speculation too, the first
    of each cause; then the first wrong greedy output in a mode whose law raised no alarm."""
    laws = [one for one in new_laws(report) if not one.not_speculation]
    told = {one.mode for one in laws}
    greedy = [one for one in new_greedy(report) if not one.not_speculation and one.mode not in told]
    return [*first_of_each_cause(laws), *greedy[:1]]


def has_script(finding: Finding) -> bool:
    """Whether a violation's reproduction is a script, rather than a command or a sentence."""
    return finding.reproduction.startswith(f"# {SCRIPT}")


def reproduction(engine: str, finding: Finding) -> str:
    """A violation's reproduction in one line."""
    if not has_script(finding):
        return one_line(finding.reproduction, 600)
    return f"python {script_name(engine, finding)}, which lies beside the report"


def places(finding: Finding) -> str:
    """What the list of a violation's places is: of what was seen where, or of the probes that followed a wrong law."""
    return "What probes saw afterwards" if _probed(finding) else "Where"


def shown_places(finding: Finding) -> tuple[str, ...]:
    """What a short form shows of them: the first few of many alike, and all that probes saw, which say different things."""
    return finding.violations[: 10 if _probed(finding) else 3]


def _probed(finding: Finding) -> bool:
    return finding.requirement in ("LAW-1", "LAW-2")
