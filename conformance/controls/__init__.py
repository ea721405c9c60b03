"""Controls: planted faults that the judge must reject, and lawful variations that it must pass.

A control is our own engine with one small thing changed, run through the same audit as a real engine. They sample a small
`TableModel`, whose law is known exactly, so that a control takes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from conformance.audit import audit_engine
from conformance.engines.own import ReferenceEngine
from conformance.findings import EngineReport
from conformance.harness import InProcess
from conformance.levels import AuditSettings, Level
from conformance.scoring import TableScorer
from conformance.subject import RandomPrompts, Subject
from specref.models import LanguageModel, TableModel

VOCABULARY = 16


@dataclass(frozen=True)
class Control:
    """A changed engine. n: tokens by which a fault must be seen (with probability 1 - 1e-6), or a lawful one stay unseen.

    requirement: the one that a fault violates; "" for a lawful variation. temperature: of the requests.
    """

    name: str
    make: Callable[[LanguageModel, LanguageModel], ReferenceEngine]
    requirement: str
    n: int
    temperature: float = 1.0


def instance(number: int = 0) -> tuple[TableModel, TableModel]:
    """A published target and draft: 16 tokens, laws that depend on the last two, the draft near enough to be accepted often."""
    target = TableModel(VOCABULARY, f"target {number}", "plain", memory=2, exact=False)
    return target, TableModel(VOCABULARY, f"draft {number}", "plain", memory=2, exact=False)


def audit_control(control: Control, *, seed: int, alpha: float = 1e-6, prompts: int = 10, k: int = 3) -> EngineReport:
    """Audit a control at its stated n, exactly as an engine is audited."""
    target, draft = instance()
    texts = [str(token) for token in range(VOCABULARY)]
    subject = Subject(TableScorer(target), TableScorer(draft), RandomPrompts(VOCABULARY), (), "a table", "another table", texts)
    level = Level("control", control.n, prompts, "a planted fault or a lawful variation")
    settings = AuditSettings(level, alpha, seed, k, control.temperature)
    report = audit_engine(control.name, lambda: InProcess(control.make(target, draft)), subject, settings)
    return replace(report, engine=control.name)
