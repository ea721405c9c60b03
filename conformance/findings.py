"""What an audit says: verdicts, the findings that carry them, and the exit code that follows.

Everything here is plain data that goes into a report and back: `to_json` / `from_json` are the one way in and out.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from conformance.pictures import Contribution, Picture

SCHEMA = 1
"""Version of the JSON form of an audit report."""


class Verdict(StrEnum):
    """What is known about one requirement in one mode of one engine."""

    CONFORMS = "conforms"
    """The planned n was reached without an alarm; the finding says what it would have caught."""
    VIOLATES = "violates"
    """Proven wrong, with evidence."""
    LOSSY_AS_DECLARED = "lossy as declared"
    """The mode declares that it changes the law; the finding gives the law."""
    INCONCLUSIVE = "inconclusive"
    """Fewer samples than planned and no alarm."""
    NOT_PROMISED = "not promised"
    NOT_EXPOSED = "not exposed"
    """The engine offers nothing that the check could look at."""
    NOT_RUN = "not run"
    """Not installed, or the machine lacks what it needs."""
    ERROR = "error"
    """It crashed, hung or answered nonsense; never counted as conforming."""


JUDGED = (Verdict.CONFORMS, Verdict.VIOLATES, Verdict.LOSSY_AS_DECLARED)
UNSETTLED = (Verdict.ERROR, Verdict.INCONCLUSIVE)
"""The audit ended without a verdict, which is never taken for conforming."""
NOT_TESTED = (Verdict.NOT_PROMISED, Verdict.NOT_EXPOSED, Verdict.NOT_RUN)
REMARKABLE = 3
"""Powers of ten of evidence above which what conforms is remarked upon: a correct engine shows them once in 1,000 at most."""


@dataclass(frozen=True)
class Statistic:
    """One statistical check of a mode, as the report's table shows it.

    name: for instance "chi-square of tokens". statistic, degrees_of_freedom, p: as the textbook gives them, where it does.
    log10_evidence: log10 of the e-value that enters the ledger. holder: the bet that holds the wealth; others: the best bets on
    other laws under which what was seen is less than 1,000 times less likely. detects: the smallest fault that this check would
    have caught with probability 99.9%, in words.
    """

    name: str
    n: int
    statistic: float | None = None
    degrees_of_freedom: int | None = None
    p: float | None = None
    log10_evidence: float | None = None
    holder: str = ""
    detects: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One requirement in one mode of an engine.

    n: how much was judged, in `unit`. summary: one sentence for a person. detects: the smallest fault that would have been
    caught. violations: the first few places where a deterministic check failed. reproduction: the smallest way to see it again.
    not_speculation: the same is seen with speculation off, so it is not speculation's. expected: the reason of a violation
    or an error that is known (or why a known one was not looked for). unseen: a known one did not show, though
    samples sufficed. pictures: the first few places, to be drawn. contributions: tokens and contexts that add most evidence.
    applies: sampling settings that the part judged applies itself; none of other parts, which are handed laws.
    """

    requirement: str
    mode: str
    verdict: Verdict
    summary: str
    n: int = 0
    planned: int = 0
    unit: str = "tokens"
    alpha: float | None = None
    log10_evidence: float | None = None
    statistics: tuple[Statistic, ...] = ()
    detects: str = ""
    violations: tuple[str, ...] = ()
    reproduction: str = ""
    not_speculation: bool = False
    expected: str = ""
    unseen: bool = False
    pictures: tuple[Picture, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    applies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """The randomised PIT of a mode in one order of the vocabulary: its ECDF on a grid, and the half-width of its band."""

    order: str
    grid: tuple[float, ...]
    ecdf: tuple[float, ...]
    half_width: float


@dataclass(frozen=True)
class ModeReport:
    """What was measured in one mode, for the report's pictures. tokens: texts of the tokens in `observed` and `expected`.

    accepted_lengths: rounds by number of accepted drafts (observed); accepted_lengths_theory: the same expected under the
    declared rule, or empty. evidence_growth: (tokens judged, log10 evidence) at each look; alarm: the evidence at which
    the mode alone is an alarm, by its share of the false-alarm rate.
    With 99% confidence, at any n, all at once, as means over the contexts judged: leak_bound bounds the leak to the draft,
    ratio_sets_bound the error on every set {q/p >= t}, total_variation_bound total variation between the 50 most probable
    tokens and the rest; unclaimed: below it nothing is said of total variation over the whole vocabulary.
    """

    name: str
    rule: str
    speculation: str
    tokens_judged: int = 0
    seconds: float = 0.0
    curves: tuple[Curve, ...] = ()
    tokens: tuple[str, ...] = ()
    observed: tuple[float, ...] = ()
    expected: tuple[float, ...] = ()
    accepted_lengths: tuple[int, ...] = ()
    accepted_lengths_theory: tuple[float, ...] = ()
    evidence_growth: tuple[tuple[int, float], ...] = ()
    leak_bound: float | None = None
    ratio_sets_bound: float | None = None
    total_variation_bound: float | None = None
    unclaimed: float | None = None
    alarm: float | None = None


@dataclass(frozen=True)
class EngineReport:
    """The audit of one engine at one version."""

    engine: str
    version: str
    level: str
    alpha: float
    seed: int
    started: str
    seconds: float
    target: str
    draft: str
    findings: tuple[Finding, ...]
    modes: tuple[ModeReport, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    log10_evidence: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict that decides: the worst one among the findings."""
        return worst(finding.verdict for finding in self.findings)

    def alarm(self, mode: ModeReport | None = None) -> float:
        """The evidence, in powers of ten, at which a mode alone is an alarm; of all modes together without one."""
        return -math.log10(self.alpha) if mode is None or mode.alarm is None else mode.alarm


_BY_WEIGHT = (
    Verdict.VIOLATES,
    Verdict.ERROR,
    Verdict.INCONCLUSIVE,
    Verdict.LOSSY_AS_DECLARED,
    Verdict.CONFORMS,
    Verdict.NOT_PROMISED,
    Verdict.NOT_EXPOSED,
    Verdict.NOT_RUN,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides among several.

    >>> worst([Verdict.CONFORMS, Verdict.ERROR, Verdict.NOT_PROMISED])
    <Verdict.ERROR: 'error'>
    """
    return min(verdicts, key=_BY_WEIGHT.index, default=Verdict.NOT_RUN)


EXIT_CODES = {
    0: "all that was judged conforms",
    1: "a violation that is not known, or a known one that was not seen",
    2: "wrong settings, or files that cannot be read",
    3: "an error, something inconclusive, or nothing judged",
}
"""What the exit codes of `specref audit` and `specref judge` mean, in the words that help and documentation use."""


def exit_code(reports: Iterable[EngineReport]) -> int:
    """See `EXIT_CODES`; 2 is found before there are reports. An error that is known does not count.

    >>> exit_code([])
    3
    """
    findings = [finding for report in reports for finding in report.findings]
    if any(finding.unseen or (finding.verdict is Verdict.VIOLATES and not finding.expected) for finding in findings):
        return 1
    verdicts = [finding.verdict for finding in findings if finding.verdict is not Verdict.ERROR or not finding.expected]
    if Verdict.ERROR in verdicts or Verdict.INCONCLUSIVE in verdicts:
        return 3
    return 0 if any(verdict in JUDGED for verdict in verdicts) else 3


def to_json(reports: Iterable[EngineReport]) -> str:
    """All reports of a run as JSON text."""
    document = {"schema": SCHEMA, "engines": [_plain(dataclasses.asdict(report)) for report in reports]}
    return json.dumps(document, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value with infinities and NaN, which JSON has no numbers for, as {"float": "-inf"}."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _number(entry: dict[str, Any]) -> Any:
    return float(entry["float"]) if entry.keys() == {"float"} else entry


class BadReport(ValueError):
    """A text is no report that can be read. The message says why, and what to do."""


def from_json(text: str) -> list[EngineReport]:
    """The reports that `to_json` wrote. Raises BadReport, also for another schema version.

    >>> from_json("[]")
    Traceback (most recent call last):
    conformance.findings.BadReport: it is no report of an audit; give the report.json that specref wrote
    """
    from pydantic import TypeAdapter, ValidationError  # only readers need it

    try:
        document = json.loads(text, object_hook=_number)
    except (ValueError, RecursionError) as error:
        raise BadReport("it is no JSON; give the report.json that specref wrote, whole") from error
    if not isinstance(document, dict) or not {"schema", "engines"} <= document.keys():
        raise BadReport("it is no report of an audit; give the report.json that specref wrote")
    if document["schema"] != SCHEMA:
        version = ascii(document["schema"])[:20]
        raise BadReport(
            f"it has schema {version}, and this version of specref reads schema {SCHEMA}: write it again with this one"
        )
    try:
        return TypeAdapter(list[EngineReport]).validate_python(document["engines"])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])[:80]
        raise BadReport(f"engines.{ascii(place)[1:-1]}: {first['msg'].lower()}; write the report again") from error
