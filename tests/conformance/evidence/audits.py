"""A small audit whose evidence is kept, for tests: killed, resumed, and compared with one that was left alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from conformance.audit import audit_engine
from conformance.controls import VOCABULARY, instance
from conformance.engines.own import ReferenceEngine
from conformance.evidence.recording import Kept
from conformance.findings import EngineReport
from conformance.harness import EngineProcess, InProcess
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode, Models, Output, Request
from conformance.scoring import TableScorer
from conformance.subject import RandomPrompts, Subject

SETTINGS = AuditSettings(Level("test", 160, 3, "a test"), seed=5, k=2, max_tokens=8)


class Small(ReferenceEngine):
    """Two modes of our reference. waits: seconds before each answer."""

    waits = 0.0

    def modes(self, k: int) -> Sequence[Mode]:
        return super().modes(k)[:2]

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for output in super().generate(mode, requests):
            time.sleep(self.waits)
            self.before(mode)
            yield output

    def before(self, mode: Mode) -> None:
        """Called before each answer."""


class Slow(Small):
    waits = 0.02


def subject(number: int = 0) -> Subject:
    target, draft = instance(number)
    texts = [str(token) for token in range(VOCABULARY)]
    return Subject(TableScorer(target), TableScorer(draft), RandomPrompts(VOCABULARY), (), "a", "b", texts)


def small(models: Models) -> Small:
    """The factory of an engine in a process of its own."""
    return Small(*instance())


def left_alone(settings: AuditSettings = SETTINGS) -> EngineReport:
    return audit_engine("small", lambda: InProcess(Small(*instance())), subject(), settings)


def kept(
    folder: Path, engine: ReferenceEngine | None = None, settings: AuditSettings = SETTINGS, lanes: int = 1
) -> EngineReport:
    used = engine or Small(*instance())
    with Kept(folder, "small", settings, {"first pair": subject()}) as evidence:
        return audit_engine("small", lambda: InProcess(used), subject(), settings, evidence=evidence, lanes=lanes)


def comparable(report: EngineReport) -> EngineReport:
    """The report without its times: everything else must be the same."""
    modes = tuple(replace(mode, seconds=0.0) for mode in report.modes)
    return replace(report, started="", seconds=0.0, modes=modes, notes=(), environment={})


def chunks(folder: Path) -> list[Path]:
    return sorted(folder.glob("samples/*/[!.]*.gz"))


def up_to(folder: Path, wanted: int) -> None:
    """An audit for another process, which goes no further than `wanted` chunks until it is killed."""

    class Waits(Small):
        def before(self, mode: Mode) -> None:
            time.sleep(600.0 if len(chunks(folder)) >= wanted else 0.02)

    kept(folder, Waits(*instance()))


def slow(models: Models) -> Slow:
    """The factory of an engine that is slow enough to be killed in the middle."""
    return Slow(*instance())


def driven(folder: Path) -> EngineReport:
    """An audit with two engines in processes of their own, as the command runs them."""

    def start() -> EngineProcess:
        return EngineProcess("tests.conformance.evidence.audits:slow", Models(Path(), Path()), patience=120.0)

    with Kept(folder, "small", SETTINGS, {"first pair": subject()}) as evidence:
        return audit_engine("small", start, subject(), SETTINGS, evidence=evidence, lanes=2)
