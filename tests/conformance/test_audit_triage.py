"""Planted faults of seven families, each narrowed to its own family by general probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from conformance.audit import audit_engine
from conformance.controls import VOCABULARY, instance
from conformance.findings import Verdict
from conformance.harness import InProcess
from conformance.levels import Level
from conformance.protocols import Mode, Output, Request
from specref.chance import Chance, SampledChance
from specref.laws import Law
from specref.models import LanguageModel, TableModel, Tokens
from specref.rules import Rule, rewired
from tests.conformance.promising_engine import TwoModes, settings, subject

LEVEL = Level("triage", 4_000, 4, "a test", "plain", 0, 1)


class TemperatureLost(TwoModes):
    """settings: verification uses the target's law at temperature 1, whatever is asked for."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if model is self.target and mode.speculates and request.settings.temperature > 0:
            request = replace(request, settings=replace(request.settings, temperature=1.0))
        return super().processed(model, mode, request)


class WrongRows(TwoModes):
    """rows: in a batch, every second speculating row is verified by the draft model's laws."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        honest = self.target
        for row, request in enumerate(requests):
            self.target = self.draft if mode.speculates and row % 2 else honest
            made = list(super().generate(mode, [request]))
            self.target = honest
            yield from made


class WearsOut(TwoModes):
    """state: after 150 requests it answers with the draft model instead of the target."""

    def __init__(self, target: TableModel, draft: TableModel) -> None:
        super().__init__(target, draft)
        self.served = 0

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for request in requests:
            self.served += mode.speculates and request.settings.temperature > 0
            honest, worn = self.target, self.served > 150
            self.target = self.draft if worn and mode.speculates else honest
            made = list(super().generate(mode, [request]))
            self.target = honest
            yield from made


class FromTheTarget(TwoModes):
    """rule: after a rejection it draws from the target instead of the residual."""

    def rule(self, mode: Mode, request: Request) -> Rule:
        rule = super().rule(mode, request)
        return rewired(rule, residual=lambda p, q: p) if rule.__name__ == "ratio" else rule


class Late:
    """A model that sees another token in the place of the last."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.vocabulary = model, VOCABULARY

    def next_law(self, context: Tokens) -> Law:
        return self.model.next_law((*context[:-1], context[0]))

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]


class ReadsLate(TwoModes):
    """context: while it speculates, the target is not told the last token."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        seen = super().processed(model, mode, request)
        return Late(seen) if model is self.target and mode.speculates else seen


class ColdAlways(TwoModes):
    """control: another temperature than was asked for, with and without speculation."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if request.settings.temperature > 0:
            request = replace(request, settings=replace(request.settings, temperature=0.4))
        return super().processed(model, mode, request)


class SharesNumbers(TwoModes):
    """seed: while it speculates, the numbers of a round are those of the round before."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        self.sharing = mode.speculates
        return super().generate(mode, requests)

    def chance(self, seed: int) -> Chance:
        return OneRound(seed) if self.sharing else super().chance(seed)


class OneRound(SampledChance):
    """Numbers that every round reads again."""

    def begin_round(self, start: int) -> None:
        super().begin_round(0)


@pytest.mark.parametrize(
    ("fault", "family", "says", "temperature"),
    [
        (TemperatureLost, "settings", "sampling settings do not reach verification", 0.5),
        (WrongRows, "rows", "in the company of others", 1.0),
        (WearsOut, "state", "a fresh process conforms", 1.0),
        (FromTheTarget, "rule", "verification lets the draft's law through", 1.0),
        (ReadsLate, "context", "at temperature 0 tokens are wrong too", 1.0),
        (ColdAlways, "control", "the same is seen without speculation", 1.0),
        (SharesNumbers, "seed", "not jointly", 1.0),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_is_narrowed_to_its_family(fault: type[TwoModes], family: str, says: str, temperature: float) -> None:
    report = audit_engine(
        "faulty", lambda: InProcess(fault(*instance())), subject(), settings(LEVEL, temperature=temperature, max_tokens=24)
    )
    laws = [one for one in report.findings if one.requirement in ("LAW-1", "LAW-2") and one.mode == "draft model, ratio"]
    wrong = [one for one in laws if one.verdict is Verdict.VIOLATES and "Cause" in one.summary]
    assert len(wrong) == 1, [one.summary for one in laws]
    assert f"Cause ({family}): " in wrong[0].summary
    assert says in wrong[0].summary
