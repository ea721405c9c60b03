"""The reference engine over tables through the whole audit, healthy or with one part broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from conformance.audit import audit_engine
from conformance.components import Component, VocabularyMap
from conformance.engines.reference_drafters import Drafting
from conformance.engines.reference_engine import SpecrefEngine
from conformance.findings import EngineReport, Finding, Verdict
from conformance.harness import InProcess
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode
from conformance.scoring import TableScorer
from conformance.subject import RandomPrompts, Subject
from specref.engine import CachedTableModel, Engine, Grammar
from specref.models import TableModel

EOS = 7
TEXTS = [b"a", b"b", b"c", b" ", b"(", b")", b".", b""]
TARGET = TableModel(8, "target", memory=2, exact=False)
SMALL = TableModel(8, "small", memory=2, exact=False)
LEVEL = Level("test", 300, 4, "a test", "plain", 0, 2, 512)
SETTINGS = AuditSettings(LEVEL, seed=3, k=3, max_tokens=16)


@cache
def read_grammar(lark: str) -> Grammar:
    return Grammar.over_bytes(lark, TEXTS, EOS)


def subject() -> Subject:
    texts = [text.decode() for text in TEXTS]
    prompts = RandomPrompts(8, avoid=(EOS,))
    scorers = TableScorer(TARGET), TableScorer(SMALL)
    return Subject(*scorers, prompts, (EOS,), "a table", "another table", texts, read_grammar=read_grammar)


def engine_with(**parts: type) -> type[Engine]:
    """The engine with parts replaced, as rounds_type=OneTooFew."""
    return type("Broken", (Engine,), parts)


def audited(
    engine_type: type[Engine] = Engine,
    names: Sequence[str] = ("off", "draft model, ratio"),
    *,
    components: Callable[[Component], bool] = lambda one: True,
    draftings: Sequence[Drafting] = (),
    maps: Sequence[VocabularyMap] = (),
    parts: Sequence[Component] = (),
    level: Level = LEVEL,
    judge: Subject | None = None,
    target: CachedTableModel | None = None,
) -> EngineReport:
    """The audit of the modes that are named, and of the components that are wanted, of all modes. parts: further components."""
    models = target or CachedTableModel(TARGET), CachedTableModel(SMALL)
    whole = SpecrefEngine(*models, engine_type, read_grammar=read_grammar, draftings=draftings, maps=maps)

    class UnderAudit(SpecrefEngine):
        def modes(self, k: int) -> Sequence[Mode]:
            return [mode for mode in super().modes(k) if mode.name in names]

        def components(self) -> Sequence[Component]:
            return [one for one in (*whole.components(), *parts) if components(one)]

    engine = UnderAudit(*models, engine_type, read_grammar=read_grammar, draftings=draftings)
    settings = AuditSettings(level, seed=3, k=3, max_tokens=16)
    return audit_engine(engine.name, lambda: InProcess(engine), judge or subject(), settings)


def finding(report: EngineReport, requirement: str, mode: str) -> Finding:
    return next(one for one in report.findings if (one.requirement, one.mode) == (requirement, mode))


def violated(report: EngineReport) -> dict[str, Finding]:
    """The first violation of each requirement."""
    found: dict[str, Finding] = {}
    for one in report.findings:
        if one.verdict is Verdict.VIOLATES:
            found.setdefault(one.requirement, one)
    return found
