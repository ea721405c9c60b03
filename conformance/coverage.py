"""Which values of different factors met in a case that was judged, and why others did not, as a report lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from conformance.case_plan import CasePlan
from conformance.findings import JUDGED, Finding
from conformance.pairwise import Meeting, Row, meetings

MET = "pairs of values that meet in a case"
MISSED = "pairs of values that no judged case shows"
NO_CASE = "no mode offers both"


def covered(plan: CasePlan, findings: Iterable[Finding]) -> dict[str, dict[str, list[str]]]:
    """The pairs that met in a judged case, by their factors, and those that did not, by what was said of their cases.

    A line is a value with all that it met. What cannot meet, since no mode has both, is named too.

    >>> from conformance.findings import Verdict
    >>> cases = {"off": {"mode": "off", "cache": "default"}, "fast": {"mode": "fast", "cache": "static"}}
    >>> found = [Finding("LAW-1", "off", Verdict.CONFORMS, ""), Finding("LAW-1", "fast", Verdict.NOT_EXPOSED, "no such cache")]
    >>> lines = covered(CasePlan((), cases), found)
    >>> lines[MET]
    {'mode x cache': ['off: default']}
    >>> lines[MISSED]
    {'no mode offers both': ['off: static', 'fast: default'], 'no such cache': ['fast: static']}
    """
    said = {one.mode: one for one in findings if one.requirement == "LAW-1"}
    judged = [row for name, row in plan.rows.items() if name in said and said[name].verdict in JUDGED]
    met: set[Meeting] = set().union(*map(meetings, judged))
    why: dict[Meeting, str] = {}
    for name, row in plan.rows.items():
        for meeting in meetings(row) - met:
            why.setdefault(meeting, said[name].summary if name in said else "it was not judged")
    values = _values(plan.rows.values())
    missed: dict[str, list[tuple[str, str]]] = {}
    shown: dict[str, list[str]] = {}
    for one, other in _pairs(list(values)):
        pairs = [(a, b) for a in values[one] for b in values[other]]
        shown[f"{one} x {other}"] = _lines([(a, b) for a, b in pairs if _meeting(one, a, other, b) in met])
        for a, b in pairs:
            if _meeting(one, a, other, b) not in met:
                missed.setdefault(why.get(_meeting(one, a, other, b), NO_CASE), []).append((a, b))
    return {MET: shown, MISSED: {reason: _lines(pairs) for reason, pairs in missed.items()}}


def _values(rows: Iterable[Row]) -> Mapping[str, Sequence[str]]:
    """The values of each factor, in the order of the cases."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for factor, value in row.items():
            found.setdefault(factor, {})[value] = None
    return {factor: list(values) for factor, values in found.items()}


def _pairs(factors: Sequence[str]) -> list[tuple[str, str]]:
    return [(one, other) for i, one in enumerate(factors) for other in factors[i + 1 :]]


def _meeting(one: str, a: str, other: str, b: str) -> Meeting:
    return tuple(sorted(((one, a), (other, b))))


def _lines(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Each first value with all second ones.

    >>> _lines([("off", "static"), ("fast", "static"), ("off", "prefix")])
    ['off: static, prefix', 'fast: static']
    """
    by_first: dict[str, list[str]] = {}
    for first, second in pairs:
        by_first.setdefault(first, []).append(second)
    return [f"{first}: {', '.join(seconds)}" for first, seconds in by_first.items()]
