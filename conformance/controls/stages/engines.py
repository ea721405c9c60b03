"""A whole engine over table models, through `audit_engine`: LAW, GREEDY and what else an audit judges; and DRAFT-1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from conformance.audit import audit_engine
from conformance.checks.draft import draft_law_finding, proposals
from conformance.components import Proposal
from conformance.controls.control import SHARE, Audit, Look
from conformance.engines.own import ReferenceEngine
from conformance.harness import InProcess
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode, Request, Tokens
from conformance.scoring import TableScorer
from conformance.subject import RandomPrompts, Subject
from specref.chance import Chance, SampledChance
from specref.generate import Drafter
from specref.models import LanguageModel, TableModel
from specref.processors import SamplingSettings
from specref.rules import Rule

VOCABULARY = 16
K = 3
TOKENS = 32_768
"""Tokens that one audit of an engine spends at most."""

DRAFTS = 4_096
"""Drafted tokens that are held against their laws."""

MakeDrafter: TypeAlias = Callable[[LanguageModel, LanguageModel, Request], Drafter]
"""Makes a drafter from the draft model as the request sees it, the raw one, and the request."""


def instance(number: int = 0) -> tuple[TableModel, TableModel]:
    """A published target and draft: 16 tokens, laws that depend on the last two, the draft near enough to be accepted often."""
    target = TableModel(VOCABULARY, f"target {number}", "plain", memory=2, exact=False)
    return target, TableModel(VOCABULARY, f"draft {number}", "plain", memory=2, exact=False)


class EngineUnderTest(ReferenceEngine):
    """The reference with one mode, and one thing changed.

    declared: the rule that the mode declares; function: the one that it runs. shown: the target as the verification sees it.
    """

    def __init__(
        self,
        declared: str = "ratio",
        function: Rule | None = None,
        *,
        chance: Callable[[int], Chance] | None = None,
        drafter: MakeDrafter | None = None,
        shown: Callable[[LanguageModel, Request], LanguageModel] | None = None,
        models: tuple[LanguageModel, LanguageModel] | None = None,
        draft_law: str = "draft model",
        exact: bool = True,
    ) -> None:
        super().__init__(*(models or instance()))
        self.declared, self.function, self.made, self.shown = declared, function, drafter, shown
        self._chance, self._draft_law, self._exact = chance or SampledChance, draft_law, exact

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        kind = "copy" if self._draft_law == "n-gram" else "model"
        drafting = {"drafter": kind, "k": k}
        exact = self._exact and kind == "model"
        return (Mode("under test", drafting, self.declared, self._draft_law, exposes_rounds=True, exact_draft=exact),)

    def rule(self, mode: Mode, request: Request) -> Rule:
        """See `ReferenceEngine.rule`."""
        return self.function if self.function and request.settings.temperature > 0 else super().rule(mode, request)

    def chance(self, seed: int) -> Chance:
        """See `ReferenceEngine.chance`."""
        return self._chance(seed)

    def drafter(self, mode: Mode, request: Request) -> Drafter:
        """See `ReferenceEngine.drafter`."""
        if self.made is None or request.settings.temperature == 0:
            return super().drafter(mode, request)
        return self.made(super().processed(self.draft, mode, request), self.draft, request)

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        """See `ReferenceEngine.processed`."""
        if model is self.target and self.shown is not None and request.settings.temperature > 0:
            return self.shown(model, request)
        return super().processed(model, mode, request)


def engine(
    declared: str = "ratio",
    function: Rule | None = None,
    *,
    chance: Callable[[int], Chance] | None = None,
    drafter: MakeDrafter | None = None,
    shown: Callable[[LanguageModel, Request], LanguageModel] | None = None,
    draft_law: str = "draft model",
    exact: bool = True,
    models: tuple[LanguageModel, LanguageModel] | None = None,
    temperature: float = 1.0,
    k: int = K,
    max_tokens: int = 64,
    n: int = TOKENS,
) -> Audit:
    """The audit of an engine with one thing changed; see `EngineUnderTest`. max_tokens: of every output. exact: whether it says
    that its drafts are drawn from the draft model's own law.
    """
    make = partial(
        EngineUnderTest,
        declared,
        function,
        chance=chance,
        drafter=drafter,
        shown=shown,
        models=models,
        draft_law=draft_law,
        exact=exact,
    )

    def looks(seed: int, n: int, without: Collection[str] = ()) -> Iterator[Look]:
        return audit_whole(make(), seed, n, temperature, k, max_tokens, without)

    return Audit("engine", "tokens", n, looks, looks)


def audit_whole(
    made: EngineUnderTest,
    seed: int,
    n: int,
    temperature: float = 1.0,
    k: int = K,
    max_tokens: int = 64,
    without: Collection[str] = (),
) -> Iterator[Look]:
    """One audit of an engine at n tokens, and of its drafts where they have laws. without: laws that are not bet on."""
    V = made.target.vocabulary
    prompts, texts = RandomPrompts(V), [str(token) for token in range(V)]
    subject = Subject(TableScorer(made.target), TableScorer(made.draft), prompts, (), "a table", "another table", texts)
    settings = AuditSettings(Level("control", n, 10, "a control"), SHARE / 2, seed, k, temperature, max_tokens)
    found = audit_engine("a control", lambda: InProcess(made), subject, settings, without=without).findings
    judged = max((one.n for one in found if one.requirement == "LAW-1"), default=0)
    yield judged, found
    if made.declared in ("ratio", "block"):
        contexts = [prompts.prompt(seed * 100_003 + i) for i in range(min(n, DRAFTS) // k)]
        drafted = proposals(DraftsOf(made, temperature), contexts, k, seed)
        planned = sum(len(one.tokens) for one in drafted)
        yield judged, [*found, draft_law_finding("under test", drafted, planned, alpha=SHARE / 2, seed=seed, without=without)]


class DraftsOf:
    """The drafter of an engine's only mode, as audits see drafters."""

    name = "under test"

    def __init__(self, engine: EngineUnderTest, temperature: float) -> None:
        self.engine, self.temperature = engine, temperature

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        """See `DraftSource.propose`."""
        request = Request(context, SamplingSettings(max_tokens=k + 1, temperature=self.temperature), seed)
        chance = self.engine.chance(seed)
        chance.begin_round(0)
        drafted = self.engine.drafter(self.engine.modes(k)[0], request).draft(context, k, chance)
        return Proposal(drafted.tokens, np.array(drafted.laws, dtype=float) if drafted.has_laws and drafted.tokens else None)
