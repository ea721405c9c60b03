"""What parts that were audited alone say of the cause of a wrong law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from conformance.audit import audit_engine
from conformance.components import Component, SeenRound, Trace
from conformance.controls import instance
from conformance.engines.own_components import ReferenceChain
from conformance.findings import Verdict
from conformance.harness import InProcess
from conformance.parts_found import OTHER_ENTRIES, OTHER_LAW
from conformance.protocols import Mode, Output, Request
from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Drafter
from specref.models import Tokens
from specref.rules import rewired
from specref.rules.chain import ratio
from tests.conformance.promising_engine import Overconfident, TwoModes, settings, subject
from tests.conformance.test_audit_triage import LEVEL, FromTheTarget, GarbageHeats, ReadsLate, WrongRows


class ClaimsAnother(TwoModes):
    """draft: drafts are handed over with another law than they were drawn from; a component that drafts shows such a thing."""

    drafter_name = "draft model"

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio = super().modes(k)
        return (off, replace(ratio, drafter=self.drafter_name))

    def drafter(self, mode: Mode, request: Request) -> Drafter:
        honest = super().drafter(mode, request)
        return Renumbered(honest) if request.settings.temperature > 0 else honest

    def components(self) -> Sequence[Component]:
        return (Overconfident(),)


class Renumbered:
    """Claims the law that drafts were drawn from in another order of its tokens."""

    def __init__(self, honest: Drafter) -> None:
        self.honest = honest

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        made = self.honest.draft(context, k, chance)
        return Draft.claimed(made.tokens, [law[::-1] for law in made.laws])


class FromTheTargetElsewhere(FromTheTarget):
    """rule, while a component that this mode does not draft with claims another law."""

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio = super().modes(k)
        return (off, replace(ratio, drafter="some other drafter"))

    def components(self) -> Sequence[Component]:
        return (Overconfident(),)


@pytest.mark.parametrize(
    ("fault", "temperature", "says"),
    [
        (ClaimsAnother, 1.0, f"Cause (draft): {OTHER_LAW} (draft model)"),
        (ClaimsAnother, 0.5, f"Cause (draft): {OTHER_LAW} (draft model)"),
        (FromTheTargetElsewhere, 1.0, "Cause (rule): "),
    ],
)
def test_a_mode_is_blamed_on_its_own_drafter_alone(fault: type[TwoModes], temperature: float, says: str) -> None:
    level = replace(LEVEL, rows=4_096)
    made = settings(level, temperature=temperature, max_tokens=24)
    report = audit_engine("faulty", lambda: InProcess(fault(*instance())), subject(), made)
    found = {(one.requirement, one.mode): one for one in report.findings}
    assert found["DRAFT-1", "component: draft model"].verdict is Verdict.VIOLATES
    assert says in found["LAW-1", "draft model, ratio"].summary


class Whole(ReferenceChain):
    """Applies temperature itself, and loses it."""

    applies = ("temperature",)

    def __init__(self) -> None:
        super().__init__("ratio", rewired(ratio, residual=lambda p, q: p), "whole")


class PartsOfTheSettings(GarbageHeats):
    """settings, as the parts show it; top-k does not end the engine."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        return TwoModes.generate(self, mode, requests)

    def components(self) -> Sequence[Component]:
        return (ReferenceChain("ratio"), Whole())


class PartsOfTheRule(FromTheTarget):
    """rule, as the parts show it: what is handed laws violates too."""

    def components(self) -> Sequence[Component]:
        return (ReferenceChain("ratio"), ReferenceChain("ratio", rewired(ratio, residual=lambda p, q: p), "rule"), Whole())


class RowsBesideParts(WrongRows):
    """rows, which the probes see; parts that lose settings do not explain that a request alone conforms."""

    def components(self) -> Sequence[Component]:
        return (ReferenceChain("ratio"), Whole())


class ContextBesideParts(ReadsLate):
    """context: temperature 0 violates too, which lost settings do not explain."""

    def components(self) -> Sequence[Component]:
        return (ReferenceChain("ratio"), Whole())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (PartsOfTheSettings, "Cause (settings): sampling settings do not reach verification; at temperature 0 it conforms"),
        (PartsOfTheRule, "Cause (rule): "),
        (RowsBesideParts, "Cause (rows): "),
        (ContextBesideParts, "Cause (context): "),
    ],
)
def test_parts_seen_alone_say_whether_settings_are_lost(fault: type[TwoModes], says: str) -> None:
    made = settings(replace(LEVEL, rows=4_096), max_tokens=24)
    report = audit_engine("faulty", lambda: InProcess(fault(*instance())), subject(), made)
    found = {(one.requirement, one.mode): one for one in report.findings}
    assert found["LAW-3", "component: whole"].verdict is Verdict.VIOLATES
    law = found["LAW-1", "draft model, ratio"]
    assert says in law.summary
    lost = "component: whole, which applies temperature itself, violates LAW-3" in law.violations
    assert lost is (fault is PartsOfTheSettings)


class OtherEntries:
    """Rounds after which the cache holds what nobody read."""

    name, rule, tolerance, lag, grammars = "its rounds", "ratio", 0.0, 0, False

    def watch(self, prompts: Sequence[Tokens], max_tokens: int, temperature: float, seed: int, grammar: str) -> Trace:
        pairs = [(np.zeros((len(one), 1)), np.ones((len(one), 1))) for one in prompts]
        return Trace(tuple(SeenRound(i, len(one), (*one, 0), (), cache=pairs[i]) for i, one in enumerate(prompts)))


class KeepsOtherEntries(ReadsLate):
    """context, as the part shows it that the mode names."""

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio = super().modes(k)
        return (off, replace(ratio, cache="its rounds"))

    def components(self) -> Sequence[Component]:
        return (OtherEntries(),)


def test_a_mode_is_blamed_on_the_cache_that_it_names() -> None:
    made = settings(replace(LEVEL, rows=256), max_tokens=24)
    report = audit_engine("faulty", lambda: InProcess(KeepsOtherEntries(*instance())), subject(), made)
    law, greedy = (
        next(one for one in report.findings if (one.requirement, one.mode) == (requirement, "draft model, ratio"))
        for requirement in ("LAW-1", "GREEDY-1")
    )
    assert greedy.summary.endswith("KV-1 of component: its rounds explains it")
    assert f"Cause (context): {OTHER_ENTRIES} (its rounds)" in law.summary
    assert any(place.startswith("component: its rounds violates KV-1") for place in law.violations)
