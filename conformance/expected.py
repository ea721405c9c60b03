"""Known violations (and errors) of a pinned engine, kept in a file with their reasons: a run fails only for what is new.

    [[violation]]
    engine = "some-engine"
    version = "1.2.3"
    requirement = "LAW-1"
    mode = "draft model"
    reason = "temperature does not reach verification, upstream issue 123"
    n = 2000              # samples at which it is seen with probability 99.9%
    text = "temperatures" # optional: it must occur in what is found, in its summary or in one of its places
    verdict = "error"     # optional: what is known is a crash; without it, a violation
    expires = 2027-01-31  # optional: after this day it excuses nothing

A star in `requirement` or `mode` stands for any text: such an entry excuses all that it fits, and is seen once one of them is.

Where one requirement shows several faults in a mode, each has an entry of its own with a `text`: each is then known by itself,
and missed by itself. What is found is explained by all entries that fit it, those with a text first. It is known where each
of its places is: an entry without a text knows them all, one with a text those in which it occurs. A new place beside a known
one is new.

A violation that is listed does not fail the run, until its entry expires. One that is listed and not seen, by a run of n
samples or more, does: the engine was mended, or the check went blind, and either way the file is wrong. With fewer samples it
is "not tested at this level".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from conformance.findings import EngineReport, Finding, Verdict
from conformance.levels import LEVELS
from conformance.problems import UsageProblem
from conformance.requirements import BY_ID

FIELDS = {"engine": str, "version": str, "requirement": str, "mode": str, "reason": str, "n": int}
VERDICTS = (Verdict.VIOLATES, Verdict.ERROR)
"""What can be known of an engine."""
COMPONENT = "component: "
"""How the modes of what is audited alone begin."""


@dataclass(frozen=True)
class Expected:
    """One known violation. n: samples at which it is seen with probability 99.9%. text: what a finding says of it, where one
    says more; "" fits any. expires: the last day on which it excuses.
    """

    engine: str
    version: str
    requirement: str
    mode: str
    reason: str
    n: int
    text: str = ""
    verdict: Verdict = Verdict.VIOLATES
    expires: date | None = None

    def is_about(self, finding: Finding) -> bool:
        """Whether a finding of its engine is about the same requirement in the same mode.

        >>> known = Expected("e", "1", "LAW-*", "fast*", "leaks", n=9)
        >>> [known.is_about(Finding("LAW-2", mode, Verdict.VIOLATES, "")) for mode in ("fast [top-k 5]", "off")]
        [True, False]
        """
        return fits(self.requirement, finding.requirement) and fits(self.mode, finding.mode)

    def is_seen_in(self, finding: Finding) -> bool:
        """Whether a finding of its engine shows it.

        >>> known = Expected("e", "1", "LOUD-1", "fast", "ignored", n=9, text="top_k")
        >>> [known.is_seen_in(Finding("LOUD-1", "fast", Verdict.VIOLATES, "wrong", violations=(f"{one}: ignored",)))
        ...  for one in ("top_k", "top_p")]
        [True, False]
        """
        said = (finding.summary, *finding.violations)
        return finding.verdict is self.verdict and self.is_about(finding) and any(self.text in one for one in said)

    @property
    def expired(self) -> bool:
        """Whether it excuses nothing any more."""
        return self.expires is not None and _today() > self.expires


def fits(pattern: str, text: str) -> bool:
    """Whether `text` is `pattern`, in which a star stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def read_expected(path: Path) -> list[Expected]:
    """The known violations in a file. Raises UsageProblem naming the entry and the field that is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageProblem(
            f"cannot read known violations from {path}: {error}; give a TOML file with [[violation]] tables"
        ) from error
    entries = document.pop("violation", [])
    if document or not isinstance(entries, list):
        raise UsageProblem(f"{path} holds {', '.join(document) or 'violation = ...'}; write [[violation]] tables only")
    return [_expected(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _expected(path: Path, number: int, entry: object) -> Expected:
    where = f"violation {number} in {path}"
    if not isinstance(entry, dict):
        raise UsageProblem(f"{where} is {entry!r}; write it as a [[violation]] table")
    for name, kind in FIELDS.items():
        if type(entry.get(name)) is not kind:
            what = "a whole number" if kind is int else "a text"
            found = repr(entry[name]) if name in entry else "missing"
            raise UsageProblem(f"{where}: {name} is {found}; write {what}")
    if "expires" in entry and type(entry["expires"]) is not date:
        raise UsageProblem(f"{where}: expires is {entry['expires']!r}; write a date, as 2027-01-31")
    if "text" in entry and (type(entry["text"]) is not str or not entry["text"]):
        raise UsageProblem(f"{where}: text is {entry['text']!r}; write some words of what is found, or leave it out")
    known = (*FIELDS, "text", "verdict", "expires")
    unknown = set(entry) - set(known)
    if unknown:
        raise UsageProblem(f"{where}: nothing is called {sorted(unknown)[0]!r}; the fields are {', '.join(known)}")
    if entry["n"] < 1:
        raise UsageProblem(f"{where}: n is {entry['n']}; give 1 or more")
    if entry.get("verdict", VERDICTS[0]) not in VERDICTS:
        raise UsageProblem(f"{where}: verdict is {entry['verdict']!r}; write one of {', '.join(VERDICTS)}")
    if not any(fits(entry["requirement"], one) for one in BY_ID):
        raise UsageProblem(
            f"{where}: the catalogue has no requirement {entry['requirement']!r}; `specref requirements` names all"
        )
    return Expected(**{**entry, "verdict": Verdict(entry.get("verdict", VERDICTS[0]))})


def mark_expected(reports: Sequence[EngineReport], known: Sequence[Expected]) -> list[EngineReport]:
    """The reports with each finding marked that a known violation is about, and a note for each that is about no mode."""
    return [_with_known(report, [one for one in known if _of(one, report)]) for report in reports]


def _of(one: Expected, report: EngineReport) -> bool:
    return (one.engine, one.version) == (report.engine, report.version)


def _with_known(report: EngineReport, known: Sequence[Expected]) -> EngineReport:
    findings = [_explained(finding, [one for one in known if one.is_seen_in(finding)]) for finding in report.findings]
    for one in known:
        mine = [place for place, finding in enumerate(report.findings) if one.is_about(finding)]
        if mine and not any(one.is_seen_in(report.findings[place]) for place in mine):
            most = max(mine, key=lambda place: findings[place].n)
            findings[most] = _not_seen(findings[most], one)
    about = "is about {0.requirement} in mode {0.mode!r}, which this engine does not have: correct its entry."
    notes = [f"A known {_what(one)} {about.format(one)}" for one in known if _names_no_mode(one, report)]
    return replace(report, findings=tuple(findings), notes=(*report.notes, *notes))


def _what(one: Expected) -> str:
    return "error" if one.verdict is Verdict.ERROR else "violation"


def _explained(finding: Finding, seen: Sequence[Expected]) -> Finding:
    """The finding, with all that is known of it. seen: the known violations that it shows."""
    by_text = sorted(seen, key=lambda one: not one.text)
    valid = [one for one in by_text if not one.expired]
    reasons = "; ".join(dict.fromkeys(one.reason for one in valid))
    places = finding.violations or (finding.summary,)
    if valid and all(any(one.text in place for one in valid) for place in places):
        return replace(finding, expected=reasons)
    said = [f"of this is known: {reasons}; the rest is new. "] if valid else []
    renew = "mend the engine, or look again and renew it"
    said += [f"known ({one.reason}), but its entry expired on {one.expires}: {renew}. " for one in by_text if one.expired]
    return replace(finding, summary="".join(said) + finding.summary)


def _not_seen(finding: Finding, one: Expected) -> Finding:
    """The finding with the largest n, of those that a known violation could have shown in."""
    failed = finding.verdict in VERDICTS  # there something else was found, which stands
    if finding.n < one.n:
        return finding if failed else replace(finding, expected=f"not tested at this level (needs {one.n:,}): {one.reason}")
    if failed and finding.verdict is not one.verdict:
        return finding
    said = f"a known {_what(one)} was not seen in {finding.n:,} samples ({one.reason}); is it mended?"
    return replace(finding, unseen=True, summary=f"{said} {finding.summary}")


def _names_no_mode(one: Expected, report: EngineReport) -> bool:
    """Whether an audit would have met the mode that an entry names, and does not know it. Samples that were gathered elsewhere
    have the modes that they have; components are met where any component was; a level may leave a mode's requirements out, and
    its settings (in brackets) too.
    """
    if report.level not in LEVELS:
        return False
    modes = [finding.mode for finding in report.findings]
    alone = one.mode.startswith(COMPONENT)
    modes = [mode for mode in modes if mode.startswith(COMPONENT) == alone]
    return bool(modes) and not any(fits(_plain(one.mode), _plain(mode)) or fits(one.mode, mode) for mode in modes)


def _plain(mode: str) -> str:
    return mode.partition(" [")[0]


def _today() -> date:
    return datetime.now(UTC).date()
