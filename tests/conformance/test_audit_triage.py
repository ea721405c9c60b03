"""Planted faults of eight families, each narrowed to its own family by general probes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from conformance.audit import audit_engine
from conformance.controls import VOCABULARY, instance
from conformance.findings import Verdict
from conformance.harness import InProcess
from conformance.levels import Level
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Output, Request
from conformance.statistics.tolerance import Tolerance
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.laws import Law
from specref.models import LanguageModel, TableModel, Tokens
from specref.rules import Rule, Verified, rewired
from tests.conformance.promising_engine import TwoModes, settings, subject
from tests.conformance.wrong_engine import accept_all

LEVEL = Level("triage", 4_000, 4, "a test", "plain", 0, 1)


class TemperatureLost(TwoModes):
    """settings: verification uses the target's law at temperature 1, whatever is asked for."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if model is self.target and mode.speculates and request.settings.temperature > 0:
            request = replace(request, settings=replace(request.settings, temperature=1.0))
        return super().processed(model, mode, request)


class SettingsFromElsewhere(TwoModes):
    """settings: verification reads a temperature that nobody asked for, another one in each request."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if model is self.target and mode.speculates and request.settings.temperature > 0:
            heat = (1.5, 2.5, 20.0)[request.seed % 3]
            request = replace(request, settings=replace(request.settings, temperature=heat))
        return super().processed(model, mode, request)


class RefusesZero(TemperatureLost):
    """The same, and temperature 0 is refused."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        if any(request.settings.temperature == 0 for request in requests):
            raise EngineFailed("unsupported", "temperature 0 is not supported")
        return super().generate(mode, requests)


class GarbageHeats(TwoModes):
    """settings: verification reads temperatures from memory that nobody wrote: they may well rise with what is asked for.
    Top-k, read there too, ends the engine."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        if mode.speculates and any(request.settings.top_k for request in requests):
            raise EngineFailed("crash", "it ended")
        return super().generate(mode, requests)

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if model is self.target and mode.speculates and request.settings.temperature > 0:
            heat = request.settings.temperature * (0.1, 0.3, 2.0)[request.seed % 3]
            request = replace(request, settings=replace(request.settings, temperature=heat))
        return super().processed(model, mode, request)


class ComparesAndCrashes(GarbageHeats):
    """rule, and top-k ends the engine too."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        return TwoModes.processed(self, model, mode, request)

    def rule(self, mode: Mode, request: Request) -> Rule:
        return accept_all if mode.speculates and request.settings.temperature > 0 else super().rule(mode, request)


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


class BonusOfTheRowBefore(TwoModes):
    """rule: after full acceptance it draws from the row of the last draft, at temperature 0 too."""

    def rule(self, mode: Mode, request: Request) -> Rule:
        honest = super().rule(mode, request)

        def late(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
            found = honest(p, draft, chance)
            if not draft.tokens or found.accepted < len(draft.tokens):
                return found
            return Verified(found.accepted, chance.picks(p[-2], slot=("late",)))

        return late if mode.speculates else honest


class AcceptsEveryDraft(TwoModes):
    """rule: every draft is accepted, at temperature 0 too."""

    def rule(self, mode: Mode, request: Request) -> Rule:
        return accept_all if mode.speculates else super().rule(mode, request)


class AcceptsEverySampledDraft(TwoModes):
    """rule: every draft is accepted while it samples. The draft's tokens look the same at every temperature."""

    def rule(self, mode: Mode, request: Request) -> Rule:
        return accept_all if mode.speculates and request.settings.temperature > 0 else super().rule(mode, request)


def compares_with_another(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """The odds of a draft are taken against another token of the target's, and a rejected one is replaced by a later token."""
    for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
        other = float(p[i][chance.picks(p[i], slot=("other", i))])
        if not chance.accepts(min(float(q[x]), other), other, slot=("accept", i)):
            return Verified(i, chance.picks(p[i + 1], slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


class ComparesWithAnother(TwoModes):
    """rule, as OpenVINO GenAI 2026.4.1.0 has it, and a second fault at temperature 0 that batches alone show."""

    def rule(self, mode: Mode, request: Request) -> Rule:
        samples = mode.speculates and request.settings.temperature > 0
        return compares_with_another if samples else super().rule(mode, request)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        honest = self.target
        if mode.speculates and len(requests) > 1 and all(request.settings.temperature == 0 for request in requests):
            self.target = self.draft
        yield from list(super().generate(mode, requests))
        self.target = honest


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
        (TemperatureLost, "settings", "sampling settings do not reach verification; at temperature 0 it conforms", 0.5),
        (SettingsFromElsewhere, "settings", "sampling settings do not reach verification; at temperature 0 it conforms", 1.0),
        (RefusesZero, "settings", "sampling settings do not reach verification; at temperature 0 it was not judged", 0.5),
        (GarbageHeats, "settings", "sampling settings do not reach verification; at temperature 0 it conforms", 1.0),
        (ComparesAndCrashes, "rule", "verification lets the draft's law through", 1.0),
        (WrongRows, "rows", "in the company of others", 1.0),
        (WearsOut, "state", "a fresh process conforms", 1.0),
        (FromTheTarget, "rule", "verification lets the draft's law through", 1.0),
        (BonusOfTheRowBefore, "rule", "bonus tokens are drawn from a wrong law, for instance from another row", 1.0),
        (AcceptsEveryDraft, "rule", "verification lets the draft's law through", 1.0),
        (AcceptsEverySampledDraft, "rule", "verification lets the draft's law through", 0.5),
        (ComparesWithAnother, "rule", "verification lets the draft's law through", 1.0),
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


STEP = 0.75


class Coarse:
    """A model whose log-odds against its best token are rounded down to steps."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.vocabulary = model, VOCABULARY

    def next_law(self, context: Tokens) -> Law:
        law = np.asarray(self.model.next_law(context), dtype=np.float64)
        coarse = np.exp(np.ceil(np.log(np.maximum(law, 1e-300) / law.max()) / STEP) * STEP)
        return coarse / coarse.sum()

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        return [self.next_law(context + drafted[:i]) for i in range(len(drafted) + 1)]


class Rounds(TwoModes):
    """numerics: while it speculates, the target's logits are coarser than ours."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        seen = super().processed(model, mode, request)
        return Coarse(seen) if model is self.target and mode.speculates and request.settings.temperature > 0 else seen


@pytest.mark.parametrize(("eta", "family"), [(STEP / 2, "numerics"), (0.0, "rule|unknown")])
def test_what_the_measured_tolerance_explains_is_numerics(eta: float, family: str) -> None:
    about = subject()
    vars(about)["tolerance"] = Tolerance(eta, eta, eta, 10_000)  # as if it had been measured
    report = audit_engine("coarse", lambda: InProcess(Rounds(*instance())), about, settings(LEVEL, max_tokens=24))
    (wrong,) = [one for one in report.findings if one.requirement == "LAW-1" and one.verdict is Verdict.VIOLATES]
    assert re.search(rf"Cause \(({family})\): ", wrong.summary), wrong.summary
