"""What the audit finds in vLLM 0.32.0's CPU build as shipped, and that with one function corrected the same audit conforms."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from engine_here import ROOT, needs, python_of, shows_what_was_found

from conformance.audit import audit_engine
from conformance.checks.component_law import component_findings, rounds_of
from conformance.checks.greedy import greedy_finding
from conformance.component_audit import verifier_findings
from conformance.components import Component, applied_by
from conformance.expected import mark_expected, read_expected
from conformance.findings import EngineReport, Finding, Verdict
from conformance.harness import EngineInfo, EngineProcess
from conformance.levels import AuditSettings, level_named
from conformance.protocols import Models, Request
from conformance.published import EXPECTED
from conformance.subject import Subject, read_subject
from specref import pretrained
from specref.processors import SamplingSettings

PYTHON = python_of("vllm", "vllm")
pytestmark = [pytest.mark.long, needs("vllm", "vllm")]

SHIPPED = "conformance.engines.vllm:make"
CORRECTED = "tests.conformance.vllm_corrected:make"
MODELS = Models(pretrained.path("target"), pretrained.path("draft"))
SAMPLED = ("ngram", "draft_model, probabilistic", "medusa", "mtp")
CONTROLS = ("off", "off, as MiMo")
REPRODUCTIONS = sorted((ROOT / "reports" / "vllm-0.32.0" / "reproductions").glob("*.py"))


class Some(EngineProcess):
    """vLLM with some of its modes, and without its components."""

    chosen: Sequence[str] = ()

    def describe(self, k: int) -> EngineInfo:
        info = super().describe(k)
        return replace(info, modes=tuple(mode for mode in info.modes if mode.name in self.chosen))

    def components(self) -> Sequence[Component]:
        return ()


@pytest.fixture(scope="module")
def subject() -> Subject:
    return read_subject(MODELS)


def audited(
    factory: str, modes: Sequence[str], subject: Subject, requests: int = 0, cases: Literal["plain", "share"] = "plain"
) -> EngineReport:
    """A short audit of some modes. cases: with "share" the family checks ask every mode, and not the first of each rule."""

    def start() -> Some:
        runner = Some(factory, MODELS, patience=600, python=PYTHON)
        runner.chosen = modes
        return runner

    level = replace(level_named("smoke"), tokens=1_000, prompts=8, budget=0, rows=0, requests=requests, cases=cases)
    return audit_engine("vllm", start, subject, AuditSettings(level, seed=int(time.time()), max_tokens=32))


def verdicts(report: EngineReport, requirement: str) -> dict[str, Verdict]:
    return {one.mode: one.verdict for one in report.findings if one.requirement == requirement}


@pytest.mark.parametrize("factory", [SHIPPED, CORRECTED])
def test_sampled_speculation_is_wrong_as_shipped_and_right_once_corrected(factory: str, subject: Subject) -> None:
    report = audited(factory, (*CONTROLS, *SAMPLED), subject)
    expected = Verdict.VIOLATES if factory == SHIPPED else Verdict.CONFORMS
    assert verdicts(report, "LAW-1") == dict.fromkeys(CONTROLS, Verdict.CONFORMS) | dict.fromkeys(SAMPLED, expected)
    assert set(verdicts(report, "GREEDY-1").values()) == {Verdict.CONFORMS}


@pytest.mark.parametrize("options", ["", ", prefix cache"])
def test_general_probes_narrow_the_cause(options: str, subject: Subject) -> None:
    """They know nothing of vLLM; `test_audit_triage` shows what they say of other faults. They ask for a prompt twice, which a
    prefix cache holds by then."""
    mode = f"ngram{options}"
    report = audited(SHIPPED, (f"off{options}", mode), subject, requests=1)
    law = next(one for one in report.findings if (one.requirement, one.mode) == ("LAW-1", mode))
    assert "Cause (settings): sampling settings do not reach verification; at temperature 0 it conforms" in law.summary
    assert any(place.startswith("temperatures (0.5, 1.0, 1.6) asked for") for place in law.violations)


def known(report: EngineReport) -> dict[tuple[str, str], Finding]:
    """The violations of a report, by requirement and mode, with what is known of them."""
    (marked,) = mark_expected([report], read_expected(EXPECTED))
    return {(one.requirement, one.mode): one for one in marked.findings if one.verdict is Verdict.VIOLATES}


def test_the_silent_block_is_named_and_known_by_itself(subject: Subject) -> None:
    """Beside what else is wrong in that mode and in the one without it."""
    found = known(audited(SHIPPED, ("draft_model", "draft_model, block"), subject, requests=1))
    silent = (
        "draft_sample_method='probabilistic', rejection_sample_method='block': expected drafts that are drawn, or a refusal"
    )
    assert found["LOUD-1", "draft_model, block"].violations[0].startswith(silent)
    assert "(block_ignored.py); a request with top_k ends the engine" in found["LOUD-1", "draft_model, block"].expected
    assert "block" not in found["LOUD-1", "draft_model"].summary + found["LOUD-1", "draft_model"].expected


def test_the_seed_that_ends_the_engine_is_named_and_known(subject: Subject) -> None:
    """Four requests, since the prompt of one alone is read whole."""
    found = known(audited(SHIPPED, ("off, chunked prefill", "off, seeds and chunked prefill"), subject, 4, "share"))
    seeds = found["SEED-1", "off, seeds and chunked prefill"]
    assert "requests with seeds: expected answers, found the end of the engine (RuntimeError: CPU Gen" in seeds.violations[0]
    assert "(seed_partial_prefill.py)" in seeds.expected
    assert set(found) == {("SEED-1", "off, seeds and chunked prefill")}


def test_drawn_drafts_do_not_use_the_seed_of_a_request(subject: Subject) -> None:
    """Once corrected too, where chosen drafts do no harm."""
    chosen, drawn = "draft_model, seeds", "draft_model, probabilistic, seeds"
    found = known(report := audited(CORRECTED, ("off, seeds", chosen, drawn), subject, 4, "share"))
    assert verdicts(report, "SEED-1") == {"off, seeds": Verdict.CONFORMS, chosen: Verdict.CONFORMS, drawn: Verdict.VIOLATES}
    assert "(draft_seeds.py)" in found["SEED-1", drawn].expected


@pytest.fixture(scope="module")
def shipped() -> Iterator[EngineProcess]:
    with EngineProcess(SHIPPED, MODELS, patience=600, python=PYTHON) as engine:
        yield engine


def test_parts_say_where_the_fault_is(shipped: EngineProcess) -> None:
    """The native expansion is wrong, and with it the module that uses it; what verifies is right alone. The Triton kernels of
    both runners are right, Model Runner V2's block verification too."""
    wrong = {}
    for component in shipped.components():
        part: Any = component
        found = component_findings(part.name, part.rule, rounds_of(part, 192, int(time.time())), planned=192)
        wrong[part.name] = any(one.verdict is Verdict.VIOLATES for one in found)
        assert applied_by(component) or not wrong[part.name]  # so that the cause is settings, whatever temperatures fit
    assert {name for name in wrong if name.startswith(("expand", "Rejection"))} == {name for name in wrong if wrong[name]}
    assert len(wrong) == 18


@pytest.fixture
def corrected() -> Iterator[EngineProcess]:
    with EngineProcess(CORRECTED, MODELS, patience=600, python=PYTHON) as engine:
        yield engine


def test_the_module_that_verifies_is_right_once_corrected(corrected: EngineProcess) -> None:
    """Also where it is told to verify by blocks, by its law. By its steps it does not: it is the ratio rule there too, and now
    and then rejects what block verification never does."""
    found = {}
    for component in corrected.components():
        if component.name.startswith("RejectionSampler"):
            findings = verifier_findings(component, 4_096, int(time.time()), 1e-6)  # type: ignore[arg-type]
            found[component.rule] = {one.requirement: one.verdict for one in findings}  # type: ignore[union-attr]
    assert set(found) == {"ratio", "one_hot", "block"}
    assert {some["LAW-3"] for some in found.values()} == {Verdict.CONFORMS}
    steps = {rule: some["LAW-4"] for rule, some in found.items()}
    assert steps == {"ratio": Verdict.CONFORMS, "one_hot": Verdict.CONFORMS, "block": Verdict.VIOLATES}


def test_every_mode_that_speculates_is_right_once_corrected(corrected: EngineProcess, subject: Subject) -> None:
    """All but those that this machine or this build cannot run."""
    names = [mode.name for mode in corrected.describe(4).modes if mode.speculates and not mode.brief]
    report = audited(CORRECTED, names, subject)
    for requirement in ("GREEDY-1", "LAW-1", "LAW-2"):
        found = [one for one in verdicts(report, requirement).values() if one is not Verdict.NOT_RUN]
        assert found == len(found) * [Verdict.CONFORMS]
        assert len(found) >= 23


@pytest.mark.parametrize("name", ["off, prefix cache", "ngram, prefix cache", "draft_model, probabilistic, prefix cache"])
def test_a_second_turn_reads_nothing_wrong_from_the_prefix_cache(name: str, corrected: EngineProcess, subject: Subject) -> None:
    """The second turn repeats the first with its answer. Half of these were sampled, so that drafts were rejected."""
    mode = next(one for one in corrected.describe(4).modes if one.name == name)
    first = [
        Request(subject.prompts.prompt(i), SamplingSettings(max_tokens=48, temperature=float(i % 2)), i) for i in range(16)
    ]
    answers = [output.tokens for output in corrected.generate(mode, first)]
    greedy = SamplingSettings(max_tokens=32, temperature=0.0)
    second = [Request((*request.prompt, *answer, 40), greedy, 0) for request, answer in zip(first, answers)]
    outputs = [output.tokens for output in corrected.generate(mode, second)]
    logits = subject.target.logits([(request.prompt, output) for request, output in zip(second, outputs)])
    assert greedy_finding(name, outputs, logits, subject.margin, planned=16).verdict is Verdict.CONFORMS


@pytest.mark.parametrize("program", REPRODUCTIONS, ids=[program.stem for program in REPRODUCTIONS])
def test_each_reproduction_shows_its_fault(program: Path) -> None:
    assert shows_what_was_found(PYTHON, program).strip()
