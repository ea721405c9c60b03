"""From places where something differs to a finding: what all deterministic checks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.findings import Finding, Verdict

SHOWN = 5
"""Places listed in a finding."""


@dataclass(frozen=True)
class Place:
    """Where a requirement failed, what was expected there, and what was found.

    >>> print(Place("request 3, position 7", "the end of the output", "token 5"))
    request 3, position 7: expected the end of the output, found token 5
    """

    where: str
    expected: object
    found: object

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"


def judged(
    requirement: str, mode: str, places: Sequence[Place], *, n: int, planned: int, unit: str, claim: str, missing: str = ""
) -> Finding:
    """The finding of a deterministic check that looked at `n` things and found `places`.

    claim: what holds if there are none. missing: what should have been looked at and was not, or "".

    >>> judged("KV-1", "ring", [], n=20, planned=20, unit="rounds", claim="the cache equals a fresh prefill").verdict
    <Verdict.CONFORMS: 'conforms'>
    >>> judged("KV-1", "ring", [Place("round 2", 5, 6)], n=20, planned=20, unit="rounds", claim="").summary
    'KV-1 fails in 1 place of 20 rounds; first, round 2: expected 5, found 6'
    """
    if places:
        verdict = Verdict.VIOLATES
        summary = f"{requirement} fails in {len(places)} place{'s' * (len(places) > 1)} of {n} {unit}; first, {places[0]}"
    elif n < planned or missing:
        verdict = Verdict.INCONCLUSIVE
        summary = f"no fault so far in {n} of {planned} {unit}" + (f", but {missing}" if missing else "")
    else:
        verdict, summary = Verdict.CONFORMS, f"{claim} ({n} {unit})"
    return Finding(
        requirement,
        mode,
        verdict,
        summary,
        n=n,
        planned=planned,
        unit=unit,
        detects=f"a fault that shows in {rate_caught(n):.2g} of the {unit}" if n else "",
        violations=tuple(map(str, places[:SHOWN])),
    )


def rate_caught(n: int) -> float:
    """The rate of a fault of which `n` independent looks show one with probability 99.9%.

    >>> round(rate_caught(1000), 4)
    0.0069
    """
    return float(1 - 1e-3 ** (1 / max(n, 1)))


def not_promised(requirement: str, mode: str, what: str) -> Finding:
    """For an engine that does not claim this."""
    return Finding(requirement, mode, Verdict.NOT_PROMISED, f"the engine does not promise {what}")


def not_exposed(requirement: str, mode: str, what: str) -> Finding:
    """For an engine that offers nothing to look at."""
    return Finding(requirement, mode, Verdict.NOT_EXPOSED, f"the engine does not expose {what}")


def nonsense(requirement: str, mode: str, problem: str) -> Finding:
    """For an answer that cannot be one."""
    return Finding(requirement, mode, Verdict.ERROR, f"nonsense: {problem}")
