"""Two audits side by side: what changed between them, what is no longer known, and whether they are alike enough to compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from conformance.findings import JUDGED, NOT_TESTED, EngineReport, Finding, Verdict
from conformance.problems import UsageProblem
from conformance.reporting.text import one_in, one_line


class Kind(StrEnum):
    """What became of one requirement in one mode; in the order in which readers need them."""

    NEW = "new violation"
    GONE = "violation gone"
    UNSEEN = "violated before, not judged now"
    LOST = "no longer judged"
    """It conformed, or was lossy as declared; now nobody knows."""
    STILL = "still violated"
    GAINED = "judged now"
    OTHER = "changed otherwise"
    SAME = "unchanged"


MEANINGS = {
    Kind.NEW: "Violated after, and not before.",
    Kind.LOST: "Judged before; after, nothing is known of it.",
    Kind.UNSEEN: "Violated before; after, it was not judged, so nobody knows whether it is mended.",
    Kind.GONE: "Violated before; after, the planned amount was judged without an alarm.",
    Kind.STILL: "Violated before and after.",
    Kind.GAINED: "Not judged before; after, it was, and raised no alarm.",
    Kind.OTHER: "Another verdict than before, and neither is a violation.",
    Kind.SAME: "The same verdict before and after, or never judged.",
}
_SILENT = (None, *NOT_TESTED)
"""Of which nothing is known; None: the report does not hold it."""


@dataclass(frozen=True)
class Row:
    """One requirement in one mode, before and after; None where a report does not hold it."""

    requirement: str
    mode: str
    before: Finding | None
    after: Finding | None

    @property
    def kind(self) -> Kind:
        """What became of it."""
        before, after = (one.verdict if one else None for one in (self.before, self.after))
        if after is Verdict.VIOLATES:
            return Kind.STILL if before is Verdict.VIOLATES else Kind.NEW
        if before is Verdict.VIOLATES:
            return Kind.GONE if after in JUDGED else Kind.UNSEEN
        if before in JUDGED and after not in JUDGED:
            return Kind.LOST
        if after in JUDGED and before not in JUDGED:
            return Kind.GAINED
        same = before is after or (before in _SILENT and after in _SILENT)
        return Kind.SAME if same else Kind.OTHER

    @property
    def known(self) -> str:
        """The reason of a violation that is known in the report after; else empty."""
        return self.after.expected if self.after and self.after.verdict is Verdict.VIOLATES else ""

    @property
    def remark(self) -> str:
        """What a reader should know before trusting the change; empty where there is nothing."""
        before, after = self.before, self.after
        if self.known:
            return f"known: {one_line(self.known, 200)}"
        if self.kind is Kind.NEW and (before is None or before.verdict not in JUDGED):
            return "not judged before, so it may be old"
        if before and after and after.verdict is Verdict.CONFORMS and before.verdict in JUDGED and after.n < before.n:
            return "less was judged than before, so smaller faults pass"
        return ""


@dataclass(frozen=True)
class Difference:
    """A setting that differs. matters: a change of verdict may come from it, and not from the engine."""

    name: str
    before: str
    after: str
    matters: bool


@dataclass(frozen=True)
class Comparison:
    """One engine in two audits; None where only one of them holds it."""

    before: EngineReport | None
    after: EngineReport | None
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]

    def of(self, *kinds: Kind) -> list[Row]:
        """The rows of some kinds, in the order of the kinds."""
        return [row for kind in kinds for row in self.rows if row.kind is kind]

    @property
    def lone_modes(self) -> tuple[list[str], list[str]]:
        """The modes that only the first report holds, and those that only the second does."""
        sides = [{finding.mode: None for finding in report.findings} if report else {} for report in (self.before, self.after)]
        return [mode for mode in sides[0] if mode not in sides[1]], [mode for mode in sides[1] if mode not in sides[0]]

    @property
    def unlike(self) -> list[Difference]:
        """The settings that make it an unlike comparison."""
        return [one for one in self.differences if one.matters]


CHANGES = tuple(kind for kind in Kind if kind is not Kind.SAME)


def compare(before: Sequence[EngineReport], after: Sequence[EngineReport]) -> list[Comparison]:
    """Pair the engines of two runs by name, or the only one with the only one. Raises UsageProblem if no two can be paired."""
    if len(before) == len(after) == 1:
        return [_compared(before[0], after[0])]
    left = list(after)
    pairs: list[tuple[EngineReport | None, EngineReport | None]] = []
    for one in before:
        other = next((other for other in left if other.engine == one.engine), None)
        left = [rest for rest in left if rest is not other]
        pairs.append((one, other))
    if not any(one and other for one, other in pairs):
        names = [", ".join(one_line(report.engine, 60) for report in some) or "none" for some in (before, after)]
        raise UsageProblem(
            f"no engine is in both reports (the first has {names[0]}; the second has {names[1]}): "
            "compare reports of one engine each, or of the same engines"
        )
    return [_compared(*pair) for pair in (*pairs, *((None, one) for one in left))]


def exit_code(comparisons: Sequence[Comparison]) -> int:
    """1: a violation that was not there before and is not known; 3: what was judged before is not judged now; else 0."""
    rows = [row for one in comparisons for row in one.rows]
    if any(row.kind is Kind.NEW and not row.known for row in rows):
        return 1
    lost = any(row.kind in (Kind.LOST, Kind.UNSEEN) for row in rows)
    judged = any(row.after is not None and row.after.verdict in JUDGED for row in rows)
    return 3 if lost or not judged else 0


def _compared(before: EngineReport | None, after: EngineReport | None) -> Comparison:
    sides = [_numbered(report.findings if report else ()) for report in (before, after)]
    keys = dict.fromkeys([*sides[0], *sides[1]])
    rows = tuple(Row(key[0], key[1], sides[0].get(key), sides[1].get(key)) for key in keys)
    return Comparison(before, after, rows, tuple(_differences(before, after)) if before and after else ())


def _numbered(findings: Sequence[Finding]) -> dict[tuple[str, str, int], Finding]:
    """The findings by requirement, mode and how often both came before."""
    found: dict[tuple[str, str, int], Finding] = {}
    for finding in findings:
        number = 0
        while (finding.requirement, finding.mode, number) in found:
            number += 1
        found[finding.requirement, finding.mode, number] = finding
    return found


def _differences(before: EngineReport, after: EngineReport) -> Iterator[Difference]:
    """What differs; members of one group ("tokens of each case: off") that differ equally are one difference."""
    sides = [_settings(report) for report in (before, after)]
    groups: dict[tuple[str, str, str, bool], list[str]] = {}
    for name, matters in dict.fromkeys([*sides[0], *sides[1]]):
        one, other = (side.get((name, matters), "") for side in sides)
        group, _, member = name.partition(": ")
        if one != other and not (member and not (one and other)):  # a case that only one of them has is a row, not a setting
            groups.setdefault((group, one or "–", other or "–", matters), []).append(member)
    for (group, one, other, matters), members in groups.items():
        name = group if len(members) > 1 or not members[0] else f"{group}: {members[0]}"
        yield Difference(name + (f" ({len(members)} of them)" if len(members) > 1 else ""), one, other, matters)


def _settings(report: EngineReport) -> dict[tuple[str, bool], str]:
    """(name, whether it matters) to value: what an audit was given, one by one."""
    said = {
        ("level", True): report.level,
        ("false-alarm rate", True): one_in(report.alpha),
        ("target", True): report.target,
        ("draft", True): report.draft,
        ("seed", False): str(report.seed),
    }
    for mode in report.modes:
        said |= {(f"declared rule: {mode.name}", True): mode.rule, (f"speculation: {mode.name}", True): mode.speculation}
    said |= {(name, not name.startswith(("sealed plan", "samples", "sha256"))): value for name, value in _flat(report.plan)}
    said |= {(name, name == "specref"): value for name, value in report.environment.items()}
    return {(one_line(name, 100), matters): one_line(value, 100) for (name, matters), value in said.items()}


def _flat(plan: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every single value of a plan; lists are left out: they follow from the modes."""
    for name, value in plan.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}: ")
        elif not isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", str(value)
