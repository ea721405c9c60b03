"""Causes of what is wrong with another pair of models than the first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from conformance.audit import Pair, audit_engine
from conformance.case_plan import CasePlan
from conformance.cases import PLAIN, Case, Setting
from conformance.controls import instance
from conformance.harness import InProcess
from conformance.protocols import Mode, Request
from conformance.scoring import TableScorer
from specref.models import LanguageModel
from tests.conformance.promising_engine import TwoModes, settings, subject
from tests.conformance.test_audit_triage import LEVEL, ReadsLate


class WrongOnTheSecond(ReadsLate):
    """models: wrong with the second pair of models alone, whatever the settings."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        honest = self.target is not PAIRS[1][0]
        return TwoModes.processed(self, model, mode, request) if honest else super().processed(model, mode, request)


class TopKLostOnTheSecond(TwoModes):
    """settings: with the second pair of models, top-k does not reach verification."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if model is PAIRS[1][0] and mode.speculates:
            request = replace(request, settings=replace(request.settings, top_k=None))
        return super().processed(model, mode, request)


class WrongOnTheSecondAlways(TwoModes):
    """control: with the second pair of models the draft answers, speculation on or off."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        return super().processed(self.draft if model is PAIRS[1][0] else model, mode, request)


class TopKLostAndGreedyWrong(TopKLostOnTheSecond):
    """The same, and temperature 0 is wrong with every pair: that the plain law conforms says nothing then."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        wrong = mode.speculates and request.settings.temperature == 0 and model is not self.draft
        return super().processed(self.draft if wrong else model, mode, request)


PAIRS = [instance(number) for number in range(2)]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (WrongOnTheSecond, r"Cause \(models\): with the models second the plain setting violates too"),
        (TopKLostOnTheSecond, r"Cause \(settings\): the plain setting conforms, so top_k does not"),
        (TopKLostAndGreedyWrong, r"Cause \((unknown|rule)\): (?!the plain setting)"),
        (WrongOnTheSecondAlways, r"Cause \(control\): the same is seen without speculation"),
    ],
)
def test_what_is_wrong_with_other_models_alone(fault: type[TwoModes], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.audit.plan_cases", lambda *_: CasePlan(planned(fault)))
    both = [replace(subject(), target=TableScorer(target), draft=TableScorer(draft)) for target, draft in PAIRS]
    report = audit_engine(
        "faulty",
        lambda: InProcess(fault(*PAIRS[0])),
        both[0],
        settings(replace(LEVEL, cases="all"), max_tokens=24),
        others=[Pair("second", lambda: InProcess(fault(*PAIRS[1])), both[1])],
    )
    (wrong,) = [one for one in report.findings if one.requirement == "LAW-1" and "Cause" in one.summary]
    assert wrong.mode == "draft model, ratio [top-k 5, second]"
    assert re.search(says, wrong.summary), wrong.summary


def planned(fault: type[TwoModes]) -> tuple[Case, ...]:
    """Both modes with the plain setting and the first models, and one case with another setting and the second."""
    off, ratio = fault(*PAIRS[0]).modes(2)
    other = Case(ratio, Setting("top-k 5", {"top_k": 5}), 1, "second", tokens=2_000, weight=0.5)
    return (Case(off, Setting(PLAIN), tokens=2_000), Case(ratio, Setting(PLAIN), tokens=2_000, weight=0.5), other)
