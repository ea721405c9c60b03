"""What a comparison of two audits says in words; the terminal, Markdown and the page share it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.findings import Finding, Verdict
from conformance.reporting import wording
from conformance.reporting.compare import CHANGES, Comparison, Kind, Row
from conformance.reporting.text import plural

NOUNS = {
    Kind.NEW: ("new violation", "new violations"),
    Kind.LOST: ("result is no longer judged", "results are no longer judged"),
    Kind.UNSEEN: ("violation was not looked for again", "violations were not looked for again"),
    Kind.GONE: ("violation is gone", "violations are gone"),
    Kind.STILL: ("violation stays", "violations stay"),
    Kind.GAINED: ("result is judged now, without an alarm", "results are judged now, without an alarm"),
    Kind.OTHER: ("other verdict changed", "other verdicts changed"),
}


def title(comparison: Comparison) -> str:
    """Which engine, from which version to which."""
    before, after = comparison.before, comparison.after
    if before is None or after is None:
        only = before or after
        assert only is not None
        return f"{wording.name(only)} (only in the {'first' if before else 'second'} report)"
    if wording.name(before) == wording.name(after):
        return f"{wording.name(before)}, before and after"
    return f"{wording.name(before)} → {wording.name(after)}"


def verdict(comparison: Comparison) -> str:
    """What changed, in one sentence."""
    before, after = comparison.before, comparison.after
    if before is None or after is None:
        only = before or after
        assert only is not None
        return f"Nothing to compare it with; there it {wording.verdict_sentence(only)}"
    parts = [plural(len(rows), *NOUNS[kind]) for kind in CHANGES if (rows := comparison.of(kind))]
    changed = any(comparison.of(kind) for kind in CHANGES if kind is not Kind.STILL)
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}." if changed else f"No verdict changed{f': {said}' if said else ''}."


def worst(comparison: Comparison) -> Verdict:
    """The verdict whose colour and symbol stand for the change: the page's own are for verdicts."""
    if comparison.of(Kind.NEW, Kind.STILL):
        return Verdict.VIOLATES
    if comparison.of(Kind.LOST, Kind.UNSEEN) or comparison.before is None or comparison.after is None:
        return Verdict.INCONCLUSIVE
    return Verdict.CONFORMS


def cautions(comparison: Comparison) -> Iterator[str]:
    """What makes it an unlike comparison, and what it can't say."""
    before, after = comparison.before, comparison.after
    if before is None or after is None:
        return
    if before.engine != after.engine:
        yield "These are two different engines: a difference is between them, and not between two versions of one."
    if comparison.unlike:
        some = ", ".join(one.name for one in comparison.unlike[:6]) + (" and more" if len(comparison.unlike) > 6 else "")
        yield f"The two runs are not alike ({some}): a verdict may have changed for that reason."
    for which, modes in zip(("first", "second"), comparison.lone_modes):
        if modes:
            yield f"Only the {which} report holds {wording.some_modes([wording.mode_name(mode) for mode in modes], 4)}."
    if before.seed == after.seed and before.version == after.version and not comparison.differences:
        yield "Both runs had the same version, settings and seed: they say hardly more than one of them."
    less = [row for row in comparison.rows if "less was judged" in row.remark]
    if less:
        yield f"{plural(len(less), 'result')} of the second run rest on fewer samples than before."


def verdict_of(finding: Finding | None) -> str:
    """The verdict of one side with its symbol."""
    return f"{wording.SYMBOLS[finding.verdict]} {finding.verdict}" if finding else "· absent"


def amounts(row: Row) -> tuple[str, str]:
    """How much was judged before and after."""
    before, after = (wording.amount(one) if one else "–" for one in (row.before, row.after))
    return before, after


def bounds(row: Row) -> tuple[str, str]:
    """The smallest fault that would have been caught, before and after."""
    before, after = (wording.detected(one, one) if one else "" for one in (row.before, row.after))
    return before or "–", after or "–"


def by_kind(comparison: Comparison) -> Sequence[tuple[Kind, list[Row]]]:
    """The changed rows, the kinds that matter most first."""
    return [(kind, rows) for kind in CHANGES if (rows := comparison.of(kind))]
