"""The report of an engine that this machine cannot run: of everything that would be judged it says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from conformance.component_audit import label
from conformance.components import kind_of
from conformance.engines import Registered
from conformance.engines.parts_alone import PartsAlone
from conformance.families import expected_of
from conformance.findings import EngineReport, Finding, Verdict
from conformance.levels import AuditSettings
from conformance.protocols import Engine, Models
from conformance.subject import Subject
from conformance.worker import load_factory

OF_A_MODE = ("LAW-1", "LAW-2", "GREEDY-1")
"""What every mode is judged by, beside the families."""
OF_A_PART = {
    "masks": ("TREE-1", "TREE-2"),
    "tree verifier": ("LAW-3", "LAW-4", "LAW-5", "TREE-4"),
    "chain verifier": ("LAW-3", "LAW-4", "LAW-5", "EDGE-1", "EDGE-2", "EDGE-3"),
}
"""What parts of each kind are judged by."""


def not_run(entry: Registered, why: str, models: Models, subject: Subject, settings: AuditSettings) -> EngineReport:
    """Its report. why: the reason of every finding. Only an adapter that can be made here names its modes."""
    engine = load_factory(entry.factory)(models) if entry.gpu else None
    where = [("ENGINE", "all")] if engine is None else would_be_judged(engine, settings.k)
    findings = tuple(Finding(requirement, mode, Verdict.NOT_RUN, why) for requirement, mode in where)
    version, names = "not installed" if engine is None else engine.version, (subject.target_name, subject.draft_name)
    level = settings.level.name
    return EngineReport(entry.name, version, level, settings.alpha, settings.seed, "", 0.0, *names, findings)


def would_be_judged(engine: Engine, k: int) -> Iterator[tuple[str, str]]:
    """Each requirement with the mode or part that it would be judged in, with `k` drafts per round."""
    if isinstance(engine, PartsAlone):
        for part in engine.parts:
            kind = kind_of(part.component)
            if kind == "verifier":
                kind = "tree verifier" if cast(Any, part.component).trees else "chain verifier"
            yield from ((requirement, label(part.component)) for requirement in OF_A_PART[kind])
        return
    for mode in engine.modes(k):
        yield from ((requirement, mode.name) for requirement in (*OF_A_MODE, *expected_of(mode)))
