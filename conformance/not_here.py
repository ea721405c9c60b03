"""What this machine cannot run, an engine or some of its modes: of everything that would be judged it says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from conformance.cases import Case
from conformance.component_audit import label
from conformance.components import kind_of
from conformance.engines import Registered
from conformance.engines.parts_alone import PartsAlone
from conformance.families import asked_modes, expected_of
from conformance.findings import EngineReport, Finding, Verdict
from conformance.levels import AuditSettings
from conformance.protocols import Engine, Mode, Models
from conformance.subject import Subject
from conformance.unfinished import Findings, mark_unfinished
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


def run_here(findings: Findings, modes: Sequence[Mode], settings: AuditSettings) -> list[Mode]:
    """The modes that the level runs, and those that would be run if they were to be had here; of the others it is said that
    they are not run."""
    level = settings.level
    here = [mode for mode in modes if not mode.not_here]
    some = list(modes) if level.all_modes else [*asked_modes(here, settings), *(mode for mode in modes if mode.not_here)]
    if level.cases == "plain":
        some = [mode for mode in some if not mode.brief]
    for mode in modes:
        if mode not in some:
            which = "no mode that only completes pairs" if mode.brief else "the first mode of each rule and law of drafts"
            said = f"level {level.name} runs {which}"
            findings["LAW-1", mode.name] = Finding("LAW-1", mode.name, Verdict.NOT_RUN, said)
    return some


def leave_out(findings: Findings, cases: Sequence[Case], modes: Sequence[Mode], settings: AuditSettings) -> None:
    """Say of all that modes which are not to be had here would be judged by that it is not run. cases: theirs.

    >>> found = {}
    >>> from conformance.levels import LEVELS
    >>> leave_out(found, [], [Mode("off"), Mode("graphs", {"k": 2}, not_here="it needs a GPU")], AuditSettings(LEVELS["smoke"]))
    >>> found["GREEDY-1", "graphs"].summary
    'not run: it needs a GPU'
    """
    judged = [(requirement, case.name, case.mode) for case in cases for requirement in ("LAW-1", "LAW-2")]
    absent = [mode for mode in modes if mode.not_here]
    judged += [("GREEDY-1", mode.name, mode) for mode in absent if not mode.brief]
    asked = asked_modes(absent, settings) if settings.level.requests else []
    judged += [(requirement, mode.name, mode) for mode in asked for requirement in expected_of(mode)]
    for requirement, name, mode in judged:
        mark_unfinished(findings, requirement, name, f"not run: {mode.not_here}")


def not_tried(modes: Sequence[Mode]) -> list[str]:
    """What a plan says of such modes: a line for each reason.

    >>> not_tried([Mode("off"), Mode("graphs", not_here="it needs a GPU"), Mode("two GPUs", not_here="it needs a GPU")])
    ['Not here, and not tried: graphs, two GPUs (it needs a GPU).']
    """
    absent = [mode for mode in modes if mode.not_here]
    return [
        f"Not here, and not tried: {', '.join(mode.name for mode in absent if mode.not_here == why)} ({why})."
        for why in dict.fromkeys(mode.not_here for mode in absent)
    ]
