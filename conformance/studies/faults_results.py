"""What is kept of a control's run, small enough for a line of a file, so that an interrupted study goes on where it was."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.controls.control import SHARE, Control, Outcome, as_stated
from conformance.findings import Finding, Verdict

ALONE = -math.log10(SHARE)
"""The evidence (log10 of an e-value) with which a check, had it been the only one, would have convicted."""


@dataclass(frozen=True)
class Result:
    """One run of a control.

    n: samples until it was killed, or all. audits: how often it was audited. killed_by: of each requirement that it names, the
    check and the bet that hold the evidence. checks: every check that would have convicted alone, as "LAW-3 bank". conforms:
    the requirements that it conforms to. error: what went wrong, if anything.
    """

    control: str
    number: int
    seed: int
    n: int
    audits: int
    seconds: float
    as_stated: bool
    violated: tuple[str, ...] = ()
    killed_by: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    conforms: tuple[str, ...] = ()
    error: str = ""


def result(control: Control, number: int, outcome: Outcome) -> Result:
    """What is kept of an outcome."""
    killed = [found for name in control.requirements if (found := outcome.finding(name)) is not None]
    errors = [one.summary for one in outcome.findings if one.verdict is Verdict.ERROR]
    return Result(
        control.id,
        number,
        outcome.seed,
        outcome.n,
        outcome.audits,
        outcome.seconds,
        as_stated(control, outcome),
        outcome.violated,
        tuple(f"{one.requirement}: {strongest(one)}" for one in killed if one.verdict is Verdict.VIOLATES),
        tuple(sorted({name for one in outcome.findings if one.verdict is Verdict.VIOLATES for name in convicting(one)})),
        tuple(sorted({one.requirement for one in outcome.findings if one.verdict is Verdict.CONFORMS})),
        "; ".join(errors)[:300],
    )


def strongest(found: Finding) -> str:
    """What convicted: the check and the bet that hold the evidence, or the first place."""
    held = [one for one in found.statistics if one.log10_evidence is not None]
    best = max(held, key=lambda one: one.log10_evidence or 0.0, default=None)
    if best is None or (best.log10_evidence or 0.0) < 3:
        return "a single place"
    return best.name + (f" ({best.holder})" if best.holder else "")


def convicting(found: Finding) -> Iterator[str]:
    """Every check within a violation that would have convicted had it been alone; its places, where it has no statistics."""
    names = [one.name for one in found.statistics if one.log10_evidence is not None and one.log10_evidence >= ALONE]
    names += [one.name for one in found.statistics if one.name == "support"]
    yield from (f"{found.requirement} {name}" for name in names or ["places"])


class Journal:
    """A file with a line for each result; the first line names the study's seed."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self.path, self.seed, self.known = path, seed, list[Result]()
        if path is not None and path.exists():
            first, *lines = path.read_text(encoding="utf-8").splitlines()
            self.seed = json.loads(first)["seed"]
            self.known = [_read(line) for line in lines]
        elif path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"seed": seed}) + "\n", encoding="utf-8")

    def add(self, one: Result) -> None:
        """Keep a result."""
        self.known.append(one)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(one)) + "\n")


def _read(line: str) -> Result:
    fields: dict[str, Any] = json.loads(line)
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Result(**given)
