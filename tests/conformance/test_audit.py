from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.audit import audit_engine
from conformance.controls import VOCABULARY, instance
from conformance.findings import EngineReport, Verdict, exit_code
from conformance.harness import EngineProcess, InProcess, Runner
from conformance.levels import AuditSettings, Level
from conformance.problems import UsageProblem
from conformance.protocols import Mode, Models, Output, RecordedRound, Request
from conformance.sampling import AcceptedLengths, NonsenseOutput, check_output
from conformance.scoring import TableScorer, laws_at
from conformance.statistics.greedy import Margin, hard_margin
from conformance.statistics.tolerance import Tolerance
from conformance.subject import RandomPrompts, Subject
from specref.chance import SampledChance
from specref.generate import ModelDrafter, generate
from specref.processors import SamplingSettings
from specref.rules.chain import ratio
from specref.stopping import Stops
from tests.conformance import failing_engines

SETTINGS = AuditSettings(Level("test", 600, 5, "a test"), seed=5, k=2, max_tokens=16)


def subject() -> Subject:
    target, draft = instance()
    texts = [str(token) for token in range(VOCABULARY)]
    return Subject(TableScorer(target), TableScorer(draft), RandomPrompts(VOCABULARY), (), "a", "b", texts)


def audited(name: str, patience: float = 120.0) -> EngineReport:
    def start() -> Runner:
        return EngineProcess(f"tests.conformance.failing_engines:{name}", Models(Path(), Path()), patience=patience)

    return audit_engine(name, start, subject(), SETTINGS)


def verdicts(report: EngineReport) -> dict[tuple[str, str], Verdict]:
    return {(one.requirement, one.mode): one.verdict for one in report.findings}


def test_a_healthy_engine_conforms_everywhere() -> None:
    report = audited("healthy")
    assert set(verdicts(report).values()) == {Verdict.CONFORMS}
    assert exit_code([report]) == 0
    assert [mode.name for mode in report.modes] == ["off", "draft model, ratio"]
    assert sum(report.modes[1].accepted_lengths) > 50


def test_a_report_names_what_its_engine_was_not_asked() -> None:
    asked_for = "Not asked, because of a fault of specref: a second engine in a process (second.py)."
    assert asked_for in audited("spared").notes


@pytest.mark.parametrize(("name", "kind"), [("raises", "crash"), ("hangs", "hang"), ("dies", "crash")])
def test_a_failing_engine_gives_error_and_keeps_what_was_judged(name: str, kind: str) -> None:
    report = audited(name, patience=15.0 if kind == "hang" else 120.0)  # what it needs to start does not count
    found = verdicts(report)
    assert found["LAW-1", "off"] is Verdict.CONFORMS
    assert found["LAW-1", "draft model, ratio"] is Verdict.ERROR
    assert found["GREEDY-1", "draft model, ratio"] is Verdict.ERROR
    failed = next(one for one in report.findings if one.verdict is Verdict.ERROR)
    assert kind in failed.summary
    assert exit_code([report]) == 3


def test_a_refused_mode_is_not_exposed_and_the_rest_goes_on() -> None:
    found = verdicts(audited("refuses"))
    assert found["LAW-1", "draft model, ratio"] is Verdict.NOT_EXPOSED
    assert found["LAW-1", "off"] is Verdict.CONFORMS


def test_a_mode_that_this_machine_cannot_run_is_not_run() -> None:
    found = verdicts(audited("lacks_a_gpu"))
    assert {verdict for (_, mode), verdict in found.items() if mode == "draft model, ratio"} == {Verdict.NOT_RUN}
    assert found["LAW-1", "off"] is Verdict.CONFORMS


def test_where_modes_are_dear_the_lowest_level_runs_one_of_each_kind() -> None:
    engine = failing_engines.Twice(*instance())
    few = replace(SETTINGS, level=replace(SETTINGS.level, all_modes=False))
    found = verdicts(audit_engine("few", lambda: InProcess(engine), subject(), few))
    assert {one: verdict for one, verdict in found.items() if one[1] == "again"} == {("LAW-1", "again"): Verdict.NOT_RUN}
    assert found["LAW-1", "draft model, ratio"] is found["GREEDY-1", "off"] is Verdict.CONFORMS


def test_a_setting_that_ends_the_engine_is_louds_and_the_rest_goes_on() -> None:
    level = replace(SETTINGS.level, requests=1)

    def start() -> Runner:
        return EngineProcess("tests.conformance.failing_engines:ends", Models(Path(), Path()), patience=120)

    report = audit_engine("ends", start, subject(), replace(SETTINGS, level=level))
    loud = next(one for one in report.findings if (one.requirement, one.mode) == ("LOUD-1", "draft model, ratio"))
    assert loud.verdict is Verdict.VIOLATES
    assert "top_k: expected an answer or a refusal" in loud.violations[0]
    assert verdicts(report)["STOP-3", "draft model, ratio"] is Verdict.CONFORMS


def test_an_engine_that_does_not_start_is_an_error() -> None:
    report = audited("fails_to_start")
    assert [one.verdict for one in report.findings] == [Verdict.ERROR]
    assert "no weights here" in report.findings[0].summary


def test_a_token_outside_the_vocabulary_is_nonsense() -> None:
    engine = failing_engines.OutOfRange(*instance())
    report = audit_engine("odd", lambda: InProcess(engine), subject(), SETTINGS)
    law = next(one for one in report.findings if (one.requirement, one.mode) == ("LAW-1", "draft model, ratio"))
    assert law.verdict is Verdict.ERROR
    assert "999" in law.summary


def test_nonsense_in_one_mode_accuses_no_other() -> None:
    """What is left of a greedy run that broke off must not be taken for the next mode's answers."""
    found = verdicts(audited("greedy_nonsense"))
    assert found.pop(("GREEDY-1", "off")) is Verdict.ERROR
    assert set(found.values()) == {Verdict.CONFORMS}


def test_what_follows_eos_violates_stop_and_is_no_evidence_about_the_law() -> None:
    plain = subject()
    with_eos = replace(plain, prompts=RandomPrompts(VOCABULARY, avoid=(3,)), eos=(3,))
    report = audit_engine("pads", lambda: InProcess(failing_engines.Pads(*instance())), with_eos, SETTINGS)
    by_family: dict[str, set[Verdict]] = {}
    for (requirement, _), verdict in verdicts(report).items():
        by_family.setdefault(requirement.split("-")[0], set()).add(verdict)
    assert by_family["LAW"] == by_family["GREEDY"] == {Verdict.CONFORMS}
    assert Verdict.VIOLATES in by_family["STOP"]
    assert all(one.not_speculation for one in report.findings if one.verdict is Verdict.VIOLATES)
    assert [note.split(":")[0] for note in report.notes] == ["off", "draft model, ratio"]
    assert all("after their end" in note for note in report.notes)


def test_random_numbers_repeated_in_every_request_violate_law_2() -> None:
    engine = failing_engines.RepeatsItsNumbers(*instance())
    report = audit_engine("same", lambda: InProcess(engine), subject(), replace(SETTINGS, level=Level("more", 3_000, 5, "")))
    assert verdicts(report)["LAW-2", "off"] is Verdict.VIOLATES
    assert verdicts(report)["LAW-2", "draft model, ratio"] is Verdict.VIOLATES


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (RecordedRound(5, (1, 2), 1, (1, 3)), "starts at 5"),
        (RecordedRound(0, (1, 2), 3, (1, 3)), "which cannot be"),
        (RecordedRound(0, (1, 2), 0, (1, 3)), "which cannot be"),
        (RecordedRound(0, (1, 99), 1, (1, 3)), "drafted token id 99"),
        (RecordedRound(0, (2, 1), 1, (3, 3)), "accepted token 3"),
        (RecordedRound(0, (1, 2), 1, (1,)), "do not add up"),
    ],
)
def test_rounds_that_contradict_themselves_are_nonsense(broken: RecordedRound, says: str) -> None:
    request = Request((1,), SamplingSettings(max_tokens=4), 0)
    check_output(request, Output((1, 3), (RecordedRound(0, (1, 2), 1, (1, 3)),)), VOCABULARY)
    with pytest.raises(NonsenseOutput, match=says):
        check_output(request, Output(broken.emitted if len(broken.emitted) > 1 else (1, 3), (broken,)), VOCABULARY)


def test_temperature_zero_audits_greedy_decoding_only() -> None:
    engine = failing_engines.Healthy(*instance())
    report = audit_engine("h", lambda: InProcess(engine), subject(), replace(SETTINGS, temperature=0.0))
    assert {one.requirement for one in report.findings} == {"GREEDY-1", "GREEDY-4", "STOP-3", "STOP-5"}


def test_two_lanes_judge_the_same_tokens_as_one() -> None:
    def start() -> Runner:
        return InProcess(failing_engines.Healthy(*instance()))

    one, two = (audit_engine("h", start, subject(), SETTINGS, lanes=lanes) for lanes in (1, 2))
    assert [(f.requirement, f.mode, f.n, f.log10_evidence) for f in one.findings] == [
        (f.requirement, f.mode, f.n, f.log10_evidence) for f in two.findings
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("temperature", -0.5),
        ("temperature", 1e-3),
        ("temperature", float("inf")),
        ("temperature", float("nan")),
        ("alpha", 0.0),
        ("alpha", 2.0),
        ("seed", -1),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageProblem, match=name):
        replace(SETTINGS, **{name: value})


def test_accepted_lengths_agree_with_theory() -> None:
    """The theory's histogram is what the ratio rule gives, on 30,000 tokens of a model whose acceptance varies."""
    target, draft = instance()
    lengths = AcceptedLengths()
    for seed in range(15):
        made = generate(target, ModelDrafter(draft), ratio, (1,), k=3, stops=Stops(2_000), chance=SampledChance(seed))
        scored = [TableScorer(model).logits([((1,), made.tokens)])[0] for model in (target, draft)]
        rounds = tuple(RecordedRound(r.start, r.drafted, r.accepted, r.emitted, "ratio") for r in made.rounds)
        p, q = (laws_at(rows, 1.0) for rows in scored)
        lengths.add("ratio", [Output(made.tokens, rounds)], [p], [q])
    observed, theory = lengths.histogram()
    assert sum(observed) == pytest.approx(sum(theory))
    for count, expected in zip(observed, theory, strict=True):
        assert abs(count - expected) < 5 * expected**0.5


class Coarse(Subject):
    """A subject whose numerics are too coarse for a margin."""

    @property
    def margin(self) -> Margin:  # type: ignore[override]
        return hard_margin(Tolerance(eta=0.1, sigma=0.02, tau=0.01, positions=10_000), "float32")


def test_a_margin_above_the_cap_convicts_nobody() -> None:
    plain = subject()
    coarse = Coarse(plain.target, plain.draft, plain.prompts, (), "a", "b", plain.texts)
    report = audit_engine("h", lambda: InProcess(failing_engines.Healthy(*instance())), coarse, SETTINGS)
    greedy = [one for one in report.findings if one.requirement == "GREEDY-1"]
    assert {one.verdict for one in greedy} == {Verdict.NOT_RUN}
    assert all("above the cap" in one.summary for one in greedy)
    assert verdicts(report)["GREEDY-2", "draft model, ratio"] is Verdict.CONFORMS


class Overshoots(failing_engines.Healthy):
    """Emits one token more than its limit, in the speculating mode."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for output in super().generate(mode, requests):
            yield Output((*output.tokens, 0)) if mode.speculates else output

    def modes(self, k: int) -> Sequence[Mode]:
        return [replace(mode, exposes_rounds=False) for mode in super().modes(k)]


class EndsEarly(Overshoots):
    """Ends one token before its limit, for no reason, in the speculating mode."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for output in failing_engines.Healthy.generate(self, mode, requests):
            yield Output(output.tokens[:-1]) if mode.speculates else output


@pytest.mark.parametrize(("engine", "requirement"), [(Overshoots, "STOP-3"), (EndsEarly, "STOP-5")])
def test_an_output_that_ends_in_the_wrong_place_violates_stop(engine: type[Overshoots], requirement: str) -> None:
    found = verdicts(audit_engine("odd", lambda: InProcess(engine(*instance())), subject(), SETTINGS))
    assert found[requirement, "draft model, ratio"] is Verdict.VIOLATES
    assert found["LAW-1", "draft model, ratio"] is Verdict.CONFORMS
    assert found["GREEDY-1", "draft model, ratio"] is Verdict.CONFORMS
    assert {verdict for (_, mode), verdict in found.items() if mode == "off"} == {Verdict.CONFORMS}
