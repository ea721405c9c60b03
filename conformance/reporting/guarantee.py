"""The guarantee that is true for what was run, in the words of statistics: no part of it is said that does not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from conformance.diagnosis import cause_of
from conformance.findings import JUDGED, REMARKABLE, EngineReport, Finding, ModeReport, Verdict
from conformance.reporting.text import count, evidence, number, one_in, one_line, plural
from conformance.reporting.violation import explanation, family_place, strongest, violations
from conformance.reporting.wording import look_again, mode_name, with_verdict

POWER = "99.9%"
"""The probability with which a fault of the stated size would have been caught (statistics: planning)."""

MOST_BOUNDED = 4
"""Modes whose bounds are told."""
MOST_CAUSES = 3
"""Causes that are told at the top."""
MOST_LOOKED_AT = 4
"""Findings that are remarked upon."""


def guarantee(report: EngineReport) -> list[tuple[str, str]]:
    """The guarantee, as (about what, sentence): the parts of it that hold for what was run, and no others."""
    statistical = [f for f in with_verdict(report, *JUDGED, Verdict.INCONCLUSIVE) if f.alpha is not None]
    conforming = with_verdict(report, Verdict.CONFORMS)
    said = [("What is wrong", one) for one in _wrong(report)]
    said += [("Look again", _look_again(one)) for one in look_again(report)[:MOST_LOOKED_AT]]
    if statistical:
        gate = "An engine whose law is within the stated tolerance of the reference trips the statistical gate with probability"
        said.append(("False alarms", f"{gate} at most {one_in(report.alpha)}."))
    if any(f.alpha is not None and f.detects for f in conforming) and report.verdict is not Verdict.VIOLATES:
        power = f"would have been caught with probability at least {POWER}"
        said.append(("Power", f"Any of the faults under “smallest fault caught”, at that size or larger, {power}."))
    if any(f.alpha is None for f in with_verdict(report, Verdict.VIOLATES)):
        said.append(("Certain", "A violation that is no matter of chance is shown by its own places: it has no error rate."))
    bounded = _bounded(report)
    if bounded:
        said.append(("Bound", _bounds(bounded)))
    if with_verdict(report, Verdict.INCONCLUSIVE):
        said.append(("Undecided", "Checks that ended early promise nothing: an early stop can only ever prove a violation."))
    if any(not f.expected for f in with_verdict(report, Verdict.VIOLATES)):
        said.append(("Next", "Mend it, then audit with another --seed: not with the very samples that convicted it."))
    elif conforming and report.level == "smoke":
        said.append(("Next", "Level smoke sees gross faults alone; go on with --level quick."))
    if conforming:
        least = min((mode.unclaimed for mode in bounded if mode.unclaimed is not None), default=1.0)
        whole = "" if least >= 1 else f"total variation over the whole vocabulary below {number(least, 2)}, "
        said.append(("Not claimed", f"Nothing is said about smaller faults, {whole}other settings, or what was not tested."))
    return said or [("Guarantee", "Nothing was judged, so nothing is promised.")]


def _wrong(report: EngineReport) -> list[str]:
    """What is known of the violations, or what caused them, each with its first mode; else what the first of them means."""
    causes: dict[str, str] = {}
    found = violations(report)
    for one in found:
        family, cause = cause_of(one)
        said = one_line(one.expected, 400) if one.expected else f"{one_line(cause, 400)} ({family})" if cause else ""
        if said:
            causes.setdefault(said, f"“{mode_name(one.mode)}”: {said}.")
    told, more = list(causes.values())[:MOST_CAUSES], len(causes) - MOST_CAUSES
    told += [f"{plural(more, 'more cause')}: see the violations."] if more > 0 else []
    return told or [f"“{mode_name(one.mode)}”: {explanation(one)}" for one in found[:1]]


def _look_again(finding: Finding) -> str:
    best = strongest(finding)
    held = f" ({one_line(best.name, 60)}: {one_line(best.holder, 80)})" if best else ""
    return (
        f"{one_line(finding.requirement, 40)} in “{mode_name(finding.mode)}” has {evidence(finding.log10_evidence)} powers of "
        f"ten against it{held}: no alarm, but a correct engine shows more than {REMARKABLE} in one such check of "
        f"{count(10**REMARKABLE)} at most. Judge more tokens, with another seed."
    )


def _bounded(report: EngineReport) -> list[ModeReport]:
    """The modes with bounds, lowest first: how wrong a mode can still be is said of what conforms, and of nothing else."""
    laws = {f.mode for f in report.findings if f.requirement == "LAW-1" and f.verdict is Verdict.CONFORMS}
    some = (m for m in report.modes if m.leak_bound is not None and m.leak_bound < 1 and m.name in laws)
    return sorted(some, key=lambda m: m.leak_bound or 0)


def _bounds(bounded: Sequence[ModeReport]) -> str:
    """Upper bounds on how wrong each mode can still be, of the modes with the lowest."""
    more = f"; and {plural(len(bounded) - MOST_BOUNDED, 'mode')} with more" if len(bounded) > MOST_BOUNDED else ""
    shown = "; ".join(f"{_readings(mode)} ({mode_name(mode.name)})" for mode in bounded[:MOST_BOUNDED]) + more
    return (
        f"In each mode that conforms, with 99% confidence for all three at once, three errors are at most so large: {shown}. "
        "“Leak” is the share of tokens that follow the draft, “ratio” the error on every set {q/p ≥ t}, “top 50” total "
        "variation at the resolution “top 50 and the rest”: means over the contexts judged, in which errors of opposite signs "
        "can cancel."
    )


def _readings(mode: ModeReport) -> str:
    """The bounds of one mode."""
    some = {"leak": mode.leak_bound, "ratio": mode.ratio_sets_bound, "top 50": mode.total_variation_bound}
    return ", ".join(f"{name} {number(bound, 2)}" for name, bound in some.items() if bound is not None)


def caught(report: EngineReport) -> list[tuple[str, list[str]]]:
    """The smallest faults that the conforming checks would have caught, each with the modes where that holds."""
    found: dict[str, list[str]] = {}
    for finding in sorted(with_verdict(report, Verdict.CONFORMS), key=family_place):
        if finding.detects:
            found.setdefault(one_line(finding.detects, 240), []).append(mode_name(finding.mode))
    return [(what, list(dict.fromkeys(modes))) for what, modes in found.items()]


def evidence_in_words(log10: float | None, alpha: float) -> str:
    """What the evidence of a run amounts to, against the level at which it is an alarm."""
    if log10 is None:
        return "No statistical evidence was gathered."
    alarm = -math.log10(alpha)
    against = "is an alarm, and this is one" if log10 >= alarm else "would be an alarm"
    return f"Evidence against the engine, in powers of ten: {evidence(log10)}; of all together {alarm:.3g} {against}."
