"""Every family through the whole audit: a healthy engine conforms, and one that breaks its promises is found out in each."""

from __future__ import annotations

from functools import cache

import pytest

from conformance.audit import audit_engine
from conformance.controls import instance
from conformance.families import control_of
from conformance.findings import EngineReport, Finding, Verdict
from conformance.harness import InProcess, Runner
from conformance.levels import Level
from conformance.protocols import Mode
from conformance.requirements import BY_ID
from tests.conformance.promising_engine import BreaksItsPromises, Promising, settings, subject

LEVEL = Level("families", 400, 4, "a test", "plain", 0, 4, 4_096)


@cache
def audited(kind: type[Promising]) -> EngineReport:
    def start() -> Runner:
        return InProcess(kind(*instance()))

    def start_with_own_draft() -> Runner:
        target = instance()[0]
        return InProcess(kind(target, target))

    return audit_engine("tables", start, subject(), settings(LEVEL), self_draft=start_with_own_draft)


def found(kind: type[Promising], requirement: str, mode: str) -> Finding:
    return next(one for one in audited(kind).findings if (one.requirement, one.mode) == (requirement, mode))


NOT_HERE = {
    ("ACCEPT-2", "hostile"),  # its drafts are not the draft model's
    ("GREEDY-2", "all"),  # single tokens convict
    *((one, "all") for one in ("GRAMMAR-3", "GRAMMAR-4")),
    *(("BATCH-3", mode) for mode in ("off", "draft model, ratio", "hostile")),
    *((one, "components") for one in ("DRAFT-3", "DRAFT-4", "TREE-3", "TREE-4", "TREE-6", "KV-2", "KV-3")),
    *((one, "components") for one in ("GRAMMAR-1", "GRAMMAR-2")),
}
"""What this engine neither promises nor offers; tests/conformance/test_audit_rounds.py has one that does."""


def test_a_healthy_engine_conforms_in_every_family_and_every_requirement_is_spoken_of() -> None:
    findings = audited(Promising).findings
    other = {(one.requirement, one.mode): one.verdict for one in findings if one.verdict is not Verdict.CONFORMS}
    assert set(other) == NOT_HERE, other
    assert set(other.values()) == {Verdict.NOT_PROMISED, Verdict.NOT_EXPOSED, Verdict.NOT_RUN}
    assert {one.requirement for one in findings} == set(BY_ID)


@pytest.mark.parametrize(
    ("requirement", "mode"),
    [
        ("SEED-1", "off"),
        ("SEED-2", "draft model, ratio"),
        ("STOP-2", "draft model, ratio"),
        ("STOP-4", "draft model, ratio"),
        ("LOUD-1", "draft model, ratio"),
        ("BATCH-1", "draft model, ratio"),
        ("BATCH-2", "draft model, ratio"),
        ("LOGPROB-1", "off"),
        ("LOGPROB-2", "off"),
        ("ACCEPT-3", "draft model, ratio"),
        ("DRAFT-2", "hostile"),
        ("GREEDY-1", "hostile"),
        ("LAW-3", "component: accepts all"),
        ("LAW-4", "component: accepts all"),
        ("TREE-2", "component: masks"),
        ("TREE-5", "component: reader"),
        ("KV-1", "component: contiguous"),
        ("DRAFT-1", "component: draft model"),
    ],
)
def test_a_broken_promise_violates(requirement: str, mode: str) -> None:
    finding = found(BreaksItsPromises, requirement, mode)
    assert finding.verdict is Verdict.VIOLATES, finding.summary


def test_a_component_that_raises_is_an_error_and_the_rest_goes_on() -> None:
    finding = found(BreaksItsPromises, "LAW-3", "component: reference ratio")
    assert finding.verdict is Verdict.ERROR
    assert "no kernel image" in finding.summary


def test_what_is_not_promised_is_not_asked_for() -> None:
    class Modest(Promising):
        def modes(self, k: int) -> list[Mode]:
            return [Mode(mode.name, mode.speculation, mode.rule) for mode in super().modes(k)[:2]]

    verdicts = {(one.requirement, one.mode): one.verdict for one in audited(Modest).findings}
    for requirement in ("SEED-1", "SEED-2", "LOGPROB-1", "LOGPROB-2", "ACCEPT-1", "ACCEPT-2", "ACCEPT-3"):
        assert verdicts[requirement, "draft model, ratio"] is Verdict.NOT_PROMISED


def test_the_control_has_the_same_options() -> None:
    plain, static = Mode("off"), Mode("off, static", options={"cache": "static"})
    fast = Mode("fast", {"k": 2}, options={"cache": "static"})
    assert control_of(fast, [plain, static, fast]) is static
    assert control_of(fast, [plain, fast]) is plain
