"""Cases: which there are at each level; a healthy engine conforms in all of them, and a setting's fault is seen in its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest

from conformance.asked_law import asked_laws, split
from conformance.audit import Pair, audit_engine
from conformance.case_plan import plan_cases
from conformance.cases import Case, Setting, part, table
from conformance.controls import VOCABULARY, instance
from conformance.coverage import MET, MISSED, NO_CASE
from conformance.engines.own import ReferenceEngine
from conformance.engines.transformers.modes import CACHES, all_modes
from conformance.engines.transformers.pairs import NAMES
from conformance.findings import EngineReport, Finding, Verdict
from conformance.harness import InProcess, Runner
from conformance.law_audit import POOLED, can_catch, sealed_ledgers
from conformance.levels import LEVELS, Level
from conformance.pairwise import meetings
from conformance.problems import EngineFailed
from conformance.protocols import Mode, Request, Unsupported
from conformance.statistics import WrongUse
from conformance.statistics.tolerance import Tolerance
from specref.models import LanguageModel
from specref.processors import ORDER, SamplingSettings
from specref.rules import Rule
from specref.rules.typical import ensemble
from tests.conformance.promising_engine import TwoModes, settings, subject

OFF, RATIO = Mode("off"), Mode("ratio", {"k": 2}, "ratio", "draft model")
STATIC = replace(RATIO, name="static", options={"cache": "static"})
ALL = Level("all", 120, 3, "a test", "all")


def audited(engine: ReferenceEngine, level: Level = ALL, **changed: object) -> EngineReport:
    return audit_engine("tables", lambda: InProcess(engine), subject(), settings(level, **changed))


def law(report: EngineReport, setting: str, mode: str = "draft model, ratio") -> Finding:
    name = f"{mode} [{setting}]" if setting else mode
    return next(one for one in report.findings if (one.requirement, one.mode) == ("LAW-1", name))


def laws(report: EngineReport, mode: str) -> list[Verdict]:
    return [one.verdict for one in report.findings if one.requirement in ("LAW-1", "LAW-2") and one.mode == mode]


def test_levels_decide_which_cases_there_are() -> None:
    modes, level = [OFF, RATIO, replace(RATIO, name="longer", speculation={"k": 4})], ALL
    some = table(settings(level), subject())
    plain, share, whole = (
        plan_cases(modes, settings(replace(level, cases=what)), subject()) for what in ("plain", "share", "all")
    )
    assert [case.name for case in plain.cases] == ["off", "ratio", "longer"]
    assert len(whole.cases) == len(modes) * len(some)
    assert len(plain.cases) < len(share.cases) < len(whole.cases)
    assert {case.setting.name for case in share.cases if case.mode is RATIO} == {one.name for one in some}


@pytest.mark.parametrize("what", ["plain", "share", "all"])
def test_every_two_values_meet_and_weights_sum_to_one(what: str) -> None:
    modes = [OFF, RATIO, STATIC, Mode("mix", {"k": 2}, lossy="a mixture", ensemble=0.5)]
    plan = plan_cases(modes, settings(replace(ALL, cases=what)), subject(), others=["llama"])
    for which in ("control", "speculation"):
        assert sum(case.weight for case in plan.cases if part(case.mode) == which) == pytest.approx(1)
    assert len({case.name for case in plan.cases}) == len(plan.cases)
    met = set().union(*map(meetings, plan.rows.values()))
    some = [one.name for one in table(settings(ALL), subject())] if what != "plain" else ["plain"]
    for architecture in ("first pair", "llama"):
        assert met >= {(("architecture", architecture), ("setting", name)) for name in some}
        assert (("architecture", architecture), ("cache", "static")) in met


MATRIX = ("mode", "cache", "setting", "architecture")


@pytest.mark.parametrize("k", [1, 4])
def test_every_two_values_of_mode_cache_setting_and_architecture_meet_in_the_audit_of_transformers(k: int) -> None:
    architectures = ["first pair", *NAMES]
    plan = plan_cases(all_modes(k, 4), settings(LEVELS["standard"]), subject(), others=NAMES)
    values = {factor: {row[factor] for row in plan.rows.values()} for factor in MATRIX}
    assert values["architecture"] == set(architectures)
    assert values["cache"] == {"default", *CACHES}
    assert values["mode"] >= {"off", "early exit", "other tokenizer", "ensemble"}
    every = {
        tuple(sorted(((one, a), (other, b))))
        for one, other in combinations(MATRIX, 2)
        for a, b in product(values[one], values[other])
    }
    assert every <= set().union(*map(meetings, plan.rows.values()))
    taken = [row for row in plan.rows.values() if row["setting"] != "presence and frequency penalties"]  # which it refuses
    left = {(row["mode"], row["architecture"]) for row in taken}
    assert left == set(product(values["mode"], architectures))
    assert len(plan.cases) < 1.2 * 23 * len(values["setting"]), "architectures take turns, and add few cases"


class InCompany(TwoModes):
    """Beside its two modes, speculation with another cache, which is judged only where that shows."""

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio = super().modes(k)
        brief = replace(ratio, name="draft model, ratio, static", options={"cache": "static"}, brief=True)
        return (off, ratio, brief, replace(brief, name="refused", options={"cache": "odd"}))

    def generate(self, mode: Mode, requests: Sequence[Request]):  # type: ignore[no-untyped-def]
        if mode.name == "refused":
            raise EngineFailed("unsupported", "no such cache")
        return super().generate(mode, requests)


def test_a_brief_mode_is_judged_under_law_alone_and_pairs_that_no_case_shows_are_named() -> None:
    report = audited(InCompany(*instance()), replace(ALL, requests=1))
    brief = [one for one in report.findings if one.mode.startswith("draft model, ratio, static")]
    assert {one.requirement.partition("-")[0] for one in brief} == {"LAW", "STOP"}, "what LAW's answers show is judged"
    assert {one.verdict for one in brief} == {Verdict.CONFORMS}
    assert report.plan[MET]["mode x cache"] == ["off: default", "draft model, ratio: default, static"]
    assert report.plan[MISSED]["unsupported: no such cache"][0] == "draft model, ratio: odd"
    assert "off: static, odd" in report.plan[MISSED][NO_CASE]
    plain = audited(InCompany(*instance()), replace(ALL, cases="plain"))
    (left,) = [one for one in plain.findings if one.mode.startswith("draft model, ratio, static")]
    assert left.verdict is Verdict.NOT_RUN


def test_the_budget_is_shared() -> None:
    plan = plan_cases([OFF, RATIO], settings(replace(ALL, tokens=40_000, budget=10_000)), subject())
    assert sum(case.tokens for case in plan.cases) == pytest.approx(10_000, rel=0.2)


def test_meetings_of_rows_with_unequal_factors() -> None:
    assert meetings({"a": "1"}) == set()
    assert len(meetings({"a": "1", "b": "2", "c": "3"})) == 3


def test_a_healthy_engine_conforms_in_every_case() -> None:
    report = audited(TwoModes(*instance()))
    assert {one.verdict for one in report.findings} == {Verdict.CONFORMS}
    assert law(report, "", POOLED).n > 1_200
    (joint,) = [one for one in report.findings if (one.requirement, one.mode) == ("LAW-2", POOLED)]
    assert joint.n == law(report, "", POOLED).n
    assert re.match(r"in every case at once: a correlation of 0\.\d+ between", joint.detects)


class SettingLost(TwoModes):
    """In verification, one field of the request does not arrive."""

    lost = "top_k"

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        if model is self.target and mode.speculates and request.settings.temperature > 0:
            plain = getattr(SamplingSettings(max_tokens=4), self.lost)
            request = replace(request, settings=replace(request.settings, **{self.lost: plain}))
        return super().processed(model, mode, request)


@pytest.mark.parametrize(
    ("field", "setting"),
    [("top_k", "top-k 5"), ("top_p", "top-p 0.9"), ("logit_bias", "logit bias and min tokens"), ("bad_words", "bad words")],
)
def test_a_setting_that_does_not_arrive_violates_its_case(field: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two = [one for one in table(settings(ALL), subject()) if one.name in ("plain", setting)]
    monkeypatch.setattr("conformance.case_plan.table", lambda settings, subject: two)
    engine = SettingLost(*instance())
    engine.lost = field
    report = audited(engine, Level("one", 2_000, 3, "", "all"))
    assert law(report, setting).verdict is Verdict.VIOLATES
    assert not law(report, setting).not_speculation
    assert law(report, "").verdict is Verdict.CONFORMS
    assert law(report, setting, "off").verdict is Verdict.CONFORMS
    assert law(report, "", POOLED).verdict is Verdict.CONFORMS, "what is proven wrong does not hide what holds for the rest"
    assert Verdict.INCONCLUSIVE not in {one.verdict for one in report.findings}, "a case that ended on its proof is decided"


class Refuses(TwoModes):
    """Knows neither min-p nor bad words."""

    def rule(self, mode: Mode, request: Request):  # type: ignore[no-untyped-def]
        for name in ("min_p", "bad_words"):
            if getattr(request.settings, name):
                raise Unsupported(f"{name} is not supported")
        return super().rule(mode, request)


def test_a_refused_setting_is_not_exposed_and_left_out_of_the_combined_case() -> None:
    engine = Refuses(*instance())
    report = audit_engine("refuses", lambda: Judging(engine), subject(), settings(ALL))
    assert law(report, "min-p 0.05").verdict is Verdict.NOT_EXPOSED
    assert "min_p is not supported" in law(report, "min-p 0.05").summary
    combined = law(report, "all combined")
    assert combined.verdict is Verdict.CONFORMS
    assert combined.summary.endswith("left out, because the engine refuses them: min_p, bad_words")


class Judging(InProcess):
    """Turns refusals into what a process of its own would make of them."""

    def generate(self, mode: Mode, requests: Sequence[Request]):  # type: ignore[no-untyped-def]
        try:
            yield from super().generate(mode, requests)
        except Unsupported as refusal:
            raise EngineFailed("unsupported", str(refusal)) from refusal


def test_a_mixture_is_judged_by_the_law_that_it_declares() -> None:
    class Mixes(TwoModes):
        weight = 0.5

        def modes(self, k: int) -> Sequence[Mode]:
            off, ratio = super().modes(k)
            mixed = replace(ratio, name="mixed", rule="undeclared", lossy="w p + (1 - w) q", ensemble=0.5, exposes_rounds=False)
            return (off, mixed)

        def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
            seen = super().processed(model, mode, request)
            if model is self.target and mode.speculates:
                return Mixture(seen, super().processed(self.draft, mode, request), self.weight)
            return seen

    engine = Mixes(*instance())
    report = audited(engine, Level("mix", 2_000, 3, ""))
    assert law(report, "", "mixed").verdict is Verdict.LOSSY_AS_DECLARED
    engine.weight = 0.1
    assert law(audited(engine, Level("mix", 2_000, 3, "")), "", "mixed").verdict is Verdict.VIOLATES


def test_what_is_wrong_at_temperature_zero_is_left_out_of_what_cases_say_together() -> None:
    class WrongAtZero(TwoModes):
        def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
            zero = mode.speculates and request.settings.temperature == 0
            return super().processed(self.draft if zero else model, mode, request)

    level = replace(ALL, cases="share")
    together = {one.mode for one in audited(WrongAtZero(*instance()), level).findings}
    assert POOLED not in together
    assert f"{POOLED} (control)" in together
    assert POOLED in {one.mode for one in audited(TwoModes(*instance()), level).findings}


class MixesWhereDrafted(TwoModes):
    """The rule of the reference that mixes, which does so at drafted places alone."""

    weight = 0.5

    def modes(self, k: int) -> Sequence[Mode]:
        off, ratio = super().modes(k)
        return (off, replace(ratio, name="mixed", lossy="w p + (1 - w) q where drafted", ensemble=0.5, exact_draft=False))

    def rule(self, mode: Mode, request: Request) -> Rule:
        if not mode.speculates or request.settings.temperature == 0:
            return super().rule(mode, request)
        return partial(ensemble, weight=self.weight)


@pytest.mark.parametrize("weight", [0.5, 0.1, 0.9])
def test_a_mixture_is_judged_at_drafted_places_and_another_weight_is_caught(weight: float) -> None:
    engine = MixesWhereDrafted(*instance())
    engine.weight = weight
    report = audited(engine, Level("mix", 6_000, 3, ""))
    verdicts = laws(report, "mixed")
    if weight == 0.5:
        assert set(verdicts) == {Verdict.LOSSY_AS_DECLARED}
        assert "judged by the law that is declared, 0.5 p + 0.5 q at drafted places" in law(report, "", "mixed").summary
    else:
        assert Verdict.VIOLATES in verdicts


def test_a_mixture_that_holds_everywhere_is_not_one_at_drafted_places_alone() -> None:
    class SaysEverywhere(MixesWhereDrafted):
        def modes(self, k: int) -> Sequence[Mode]:
            off, mixed = super().modes(k)
            return (off, replace(mixed, exposes_rounds=False))

        def generate(self, mode: Mode, requests: Sequence[Request]):  # type: ignore[no-untyped-def]
            for output in super().generate(mode, requests):
                yield replace(output, rounds=None)

    report = audited(SaysEverywhere(*instance()), Level("mix", 12_000, 3, ""), k=1)
    assert Verdict.VIOLATES in laws(report, "mixed")


def test_where_drafts_may_see_other_settings_a_mixture_is_judged_without_any_and_measured_with_them() -> None:
    mixed = Mode("mix", {"k": 2}, lossy="a mixture", ensemble=0.5)
    for exact, judged in ((False, {"plain"}), (True, {"plain", "temperature 0.6", "repetition penalty"})):
        plan = plan_cases([OFF, RATIO, replace(mixed, exact_draft=exact)], settings(ALL), subject())
        found = {case.setting.name: part(case.mode) for case in plan.cases if case.mode.name == "mix"}
        assert found.keys() == {one.name for one in table(settings(ALL), subject())}
        assert judged <= {name for name, what in found.items() if what == "speculation"}
        assert {found["top-p 0.9"], found["all combined"]} == {"lossy"}
        assert exact or found["temperature 0.6"] == "lossy"


class Mixture:
    """w p + (1 - w) q."""

    def __init__(self, p: LanguageModel, q: LanguageModel, weight: float) -> None:
        self.p, self.q, self.weight, self.vocabulary = p, q, weight, VOCABULARY

    def next_law(self, context):  # type: ignore[no-untyped-def]
        return self.weight * self.p.next_law(context) + (1 - self.weight) * self.q.next_law(context)

    def next_laws(self, context, drafted):  # type: ignore[no-untyped-def]
        both = zip(self.p.next_laws(context, drafted), self.q.next_laws(context, drafted))
        return [self.weight * p + (1 - self.weight) * q for p, q in both]


def test_an_undeclared_lossy_mode_is_measured_and_fails_nobody() -> None:
    class Typical(SettingLost):
        lost = "temperature"

        def modes(self, k: int) -> Sequence[Mode]:
            off, ratio = super().modes(k)
            return (off, ratio, replace(ratio, name="typical", lossy="typical acceptance"))

    report = audited(Typical(*instance()), Level("lossy", 1_000, 3, ""), temperature=0.5)
    lossy = law(report, "", "typical")
    assert lossy.verdict is Verdict.LOSSY_AS_DECLARED
    assert "total variation" in lossy.summary


def test_further_pairs_of_models_share_the_modes_and_settings() -> None:
    def start() -> Runner:
        return InProcess(TwoModes(*instance(1)))

    target, draft = instance(1)
    second = replace(subject(), target=type(subject().target)(target), draft=type(subject().draft)(draft))
    report = audit_engine(
        "two pairs",
        lambda: InProcess(TwoModes(*instance())),
        subject(),
        settings(replace(ALL, cases="share", tokens=100)),
        others=[Pair("second", start, second)],
    )
    assert {one.verdict for one in report.findings} == {Verdict.CONFORMS}
    assert {one.mode for one in report.findings} >= {"off [second]", "draft model, ratio [top-k 5, second]"}


def test_ends_of_bad_words_do_not_end_prompts() -> None:
    words = Setting("bad words", {"bad_words": ((1,), (4, 5))})
    prompts = [Case(OFF, words).prompt(subject(), seed) for seed in range(200)]
    assert all(prompt[-1] != 4 for prompt in prompts)
    assert any(prompt[-1] == 1 for prompt in prompts)


def test_laws_of_penalties_follow_the_history_and_an_odd_order_is_refused() -> None:
    rows = [np.zeros((2, 3))]
    asked = SamplingSettings(max_tokens=2, presence_penalty=1.0)
    exact = Tolerance(0.0, 0.0, 0.0, 10_000)
    laws = asked_laws(asked, ORDER, [((0,), (1, 0))], rows, rows, exact, 100).p
    assert laws[0].tolist() == pytest.approx([1 / 3] * 3)
    assert laws[1][1] < laws[1][0] == laws[1][2]
    late = (*ORDER[:4], *ORDER[5:], "presence_penalty")
    with pytest.raises(WrongUse, match="PresencePenalty after"):
        split(replace(asked, top_k=2).processors(late))


def test_the_plan_says_what_the_smallest_mode_will_show_and_all_together() -> None:
    some = settings(replace(ALL, tokens=40_000, budget=60_000))
    cases = plan_cases((OFF, RATIO, STATIC), some, subject(), []).cases
    ledgers = sealed_ledgers(cases, "tables", some, [subject()])
    said = can_catch(cases, ledgers, [subject()], some)
    assert said.startswith(f"3 modes in {len(cases)} cases, {sum(case.tokens for case in cases):,} tokens. Caught with")
    least = min(case.tokens for case in cases if case.is_plain and case.mode.speculates)
    assert least < 40_000
    assert f"in a mode (of {least:,} tokens): a leak to the draft of" in said
    leaks = [float(found) for found in re.findall(r"leak to the draft of ([\d.]+)", said)]
    assert len(leaks) == 2
    assert leaks[1] < leaks[0]
    alone = [case for case in cases if not case.mode.speculates]
    assert can_catch(alone, sealed_ledgers(alone, "tables", some, [subject()]), [subject()], some).endswith(" tokens.")
