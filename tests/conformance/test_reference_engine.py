"""`specref.engine` as an audited engine: in every mode it conforms, over tables and over transformers; with a part broken it is
found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from conformance.audit import audit_engine
from conformance.checks.accept import metrics_finding
from conformance.checks.greedy import drafter_swap_finding
from conformance.checks.logprob import logprob_findings
from conformance.checks.seed import repeat_findings
from conformance.checks.stop import stop_findings
from conformance.component_audit import judge
from conformance.components import kind_of
from conformance.controls.faults.batches import SettingsOfTheFirstRow
from conformance.controls.faults.reports import BonusCounted
from conformance.controls.faults.stopping import LastSlotOnly
from conformance.engines.reference_drafters import tree_shape
from conformance.engines.reference_engine import SpecrefEngine, make
from conformance.findings import Finding, Verdict
from conformance.harness import InProcess, check_modes
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode, Models, Output, Request
from conformance.reporting.violation import family
from conformance.scoring import TableScorer, TransformersScorer
from conformance.statistics.greedy import Margin
from conformance.subject import RandomPrompts, Subject
from specref import pretrained
from specref.draft import Draft
from specref.engine import CachedTableModel, Engine
from specref.engine.request import Request as Running
from specref.engine.rounds import Rounds
from specref.models import TableModel
from specref.processors import NothingLeft, SamplingSettings
from specref.tree import TokenTree

V, K, EOS = 8, 3, 7
TARGET = TableModel(V, "target", memory=2, exact=False)
SMALL = TableModel(V, "small", memory=2, exact=False)
MODES = {mode.name: mode for mode in SpecrefEngine(CachedTableModel(TARGET), CachedTableModel(SMALL)).modes(K)}


def engine(engine_type: type[Engine] = Engine) -> SpecrefEngine:
    return SpecrefEngine(CachedTableModel(TARGET), CachedTableModel(SMALL), engine_type)


def requests(number: int = 36) -> list[Request]:
    """Mixed in one batch: greedy and sampled, with ends, penalties and truncation."""
    kinds = (
        SamplingSettings(max_tokens=12),
        SamplingSettings(max_tokens=10, eos=(EOS, 5), temperature=0.8),
        SamplingSettings(max_tokens=12, stop_sequences=((1,), (6, 6)), presence_penalty=0.7, top_k=5),
        SamplingSettings(max_tokens=9, temperature=0, logit_bias={2: -1.0}),
    )
    return [Request((i % V, i // V % V, 1, i % 3), kinds[i % 4], 1000 + i) for i in range(number)]


def findings(mode: Mode, engine_type: type[Engine] = Engine) -> dict[str, Finding]:
    under_audit, asked = engine(engine_type), requests()
    outputs = list(under_audit.generate(mode, asked))
    reported = under_audit.metrics(mode)
    again = list(under_audit.generate(mode, asked))
    alone = [next(under_audit.generate(mode, [one])) for one in asked[:8]]
    rows = TableScorer(TARGET).logits([(one.prompt, output.tokens) for one, output in zip(asked, outputs)])
    returned = [output.logprobs or () for output in outputs]
    found = [
        *stop_findings(mode.name, asked, outputs, 1),
        *logprob_findings(mode.name, outputs, returned, rows, 100, promised=True, tolerance=1e-9),
        *repeat_findings(mode.name, outputs[:8], again[:8], alone, 8, promised=True),
    ]
    if mode.exposes_rounds:
        found.append(metrics_finding(mode.name, reported, outputs, 1))
    return {one.requirement: one for one in found if one.requirement != "STOP-4"}  # no request has min_tokens


def subject() -> Subject:
    texts = [str(token) for token in range(V)]
    prompts = RandomPrompts(V, avoid=(EOS,))
    return Subject(TableScorer(TARGET), TableScorer(SMALL), prompts, (EOS,), "a table", "another table", texts)


def audited(modes: Sequence[Mode], engine_type: type[Engine] = Engine, seed: int = 0) -> Mapping[tuple[str, str], Finding]:
    """LAW and GREEDY of some modes, as an audit finds them."""
    one = engine(engine_type)
    one.modes = lambda k: modes  # type: ignore[method-assign]
    settings = AuditSettings(Level("test", 800, 5, "a test"), seed=seed, k=K, max_tokens=16)
    report = audit_engine(one.name, lambda: InProcess(one), subject(), settings)
    return {(found.requirement, found.mode): found for found in report.findings}


def test_modes_are_sound() -> None:
    check_modes(list(MODES.values()))
    assert not MODES["off"].speculates
    for mode in MODES.values():
        controls = [other for other in MODES.values() if not other.speculates and other.options == mode.options]
        assert len(controls) == 1, mode.name


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["off", "draft model, block", "tree, without replacement"], id="some modes"),
        pytest.param(list(MODES), id="all modes", marks=pytest.mark.long),
    ],
)
def test_modes_follow_the_law_and_are_greedy_at_temperature_0(names: list[str]) -> None:
    found = audited([MODES[name] for name in names])
    wrong = [one.summary for (requirement, _), one in found.items() if one.verdict is not Verdict.CONFORMS]
    assert not wrong
    assert {requirement for requirement, _ in found} >= {"LAW-1", "LAW-2", "GREEDY-1"}
    assert {mode for _, mode in found} == set(names)


@pytest.mark.parametrize("name", MODES)
def test_every_mode_keeps_stops_seeds_log_probabilities_and_counts(name: str) -> None:
    wrong = [one.summary for one in findings(MODES[name]).values() if one.verdict is not Verdict.CONFORMS]
    assert not wrong


def test_matching_writes_what_the_engine_writes_without_speculation_byte_for_byte() -> None:
    names = ("off", "off, batch 1", "off, scarce memory", "draft model, token matching")
    plain, *others = ([output.tokens for output in engine().generate(MODES[name], requests())] for name in names)
    assert others == [plain] * 3


def test_scarce_memory_sends_requests_back() -> None:
    sent_back = []

    class Watched(Engine):
        def preempt(self, number: int) -> None:
            sent_back.append(number)
            super().preempt(number)

    list(engine(Watched).generate(MODES["draft model, ratio, scarce memory"], requests()))
    assert sent_back
    sent_back.clear()
    list(engine(Watched).generate(MODES["draft model, ratio"], requests()))
    assert not sent_back


def test_a_request_that_cannot_go_on_is_loud() -> None:
    impossible = Request((1,), SamplingSettings(max_tokens=4, bad_words=tuple((token,) for token in range(V))), 0)
    with pytest.raises(NothingLeft):
        list(engine().generate(MODES["off"], [impossible]))


def test_trees_are_as_deep_as_k() -> None:
    for k in range(1, 7):
        shape = tree_shape(k)
        assert max(TokenTree([0] * len(shape), shape).depths) == k


def judged_parts(kinds: Sequence[str]) -> list[Finding]:
    settings = AuditSettings(Level("test", 800, 5, "a test", rows=1024), k=K)
    some = [part for part in engine().components() if kind_of(part) in kinds]
    return [found for part in some for found in judge(part, subject(), settings, 1e-7)]


def test_its_inputs_trees_and_pages_conform_alone() -> None:
    found = judged_parts(("masks", "reader", "caches"))
    assert {one.requirement: one.verdict for one in found} == dict.fromkeys(
        ("TREE-1", "TREE-2", "TREE-5", "GREEDY-3", "KV-1"), Verdict.CONFORMS
    )


@pytest.mark.long
def test_its_rules_and_drafts_conform_alone() -> None:
    """The rules behind a round's border."""
    found = judged_parts(("verifier", "drafts"))
    wrong = [one.summary for one in found if one.verdict is not Verdict.CONFORMS]
    assert wrong == ["the rule 'traversal' forbids no single step, so only the law of its output was judged"]
    assert {family(one.requirement) for one in found} == {"LAW", "EDGE", "DRAFT", "TREE"}


# Broken engines.


class OneTooFew(Rounds):
    """Rollback leaves the first rejected draft."""

    def keep(self, request: Running, draft: Draft, path: tuple[int, ...]) -> None:
        request.entries.rollback(min(request.read + 1, request.entries.length))


FAULTS: dict[str, tuple[type[Engine], str]] = {
    "rollback one too few": (type("Wrong", (Engine,), {"rounds_type": OneTooFew}), "LOGPROB-1"),
    "an end looked for in the last slot only": (type("Wrong", (Engine,), {"rounds_type": LastSlotOnly}), "STOP-1"),
    "bonus counted as accepted": (type("Wrong", (Engine,), {"metrics_type": BonusCounted}), "ACCEPT-3"),
    "settings of the first row": (SettingsOfTheFirstRow, "SEED-2"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_engine_is_found_out(name: str) -> None:
    engine_type, requirement = FAULTS[name]
    found = findings(MODES["draft model, ratio"], engine_type)[requirement]
    assert found.verdict is Verdict.VIOLATES, found.summary


def test_a_wrong_cache_is_a_wrong_argmax_and_speculations_fault() -> None:
    found = audited([MODES["off"], MODES["draft model, ratio"]], FAULTS["rollback one too few"][0])
    assert found["GREEDY-1", "draft model, ratio"].verdict is Verdict.VIOLATES
    assert found["GREEDY-1", "off"].verdict is Verdict.CONFORMS


# Transformers.


def test_equal_bits_are_promised_where_no_company_can_change_them() -> None:
    """Over tables everywhere. In floating point not where a text is read in other pieces than alone."""
    models = Models(pretrained.path("target"), pretrained.path("draft"))
    under_audit = make(models)
    promised = {mode.name for mode in under_audit.modes(K) if {"SEED-2", "BATCH-3"} <= mode.promises.keys()}
    assert promised == {"off, nothing shared", "draft model, ratio, nothing shared"}
    assert all({"SEED-2", "BATCH-3"} <= mode.promises.keys() for mode in MODES.values())
    beginning = (1, 40, 71, 6, 40, 71)  # more than a page of other modes
    asked = [Request((*beginning[: 1 + i % 6], 30 + i), SamplingSettings(max_tokens=8), i) for i in range(6)]
    for mode in under_audit.modes(K):
        if mode.name in promised:
            alone = [next(under_audit.generate(mode, [one])) for one in asked]
            assert list(under_audit.generate(mode, asked[::-1]))[::-1] == alone


def test_over_transformers_every_mode_writes_the_same_greedy_text() -> None:
    models = Models(pretrained.path("target"), pretrained.path("draft"))
    under_audit, scorer = make(models), TransformersScorer.load(models.target)
    greedy = SamplingSettings(max_tokens=10, temperature=0)
    asked = [Request((1, 40 + i, 71 + i, 6), greedy, i) for i in range(3)]
    outputs: dict[str, list[Output]] = {
        mode.name: list(under_audit.generate(mode, asked))
        for mode in under_audit.modes(K)
        if "," in mode.name or not mode.speculates
    }
    tokens = {name: [output.tokens for output in found] for name, found in outputs.items()}
    logits = scorer.logits([(one.prompt, output) for one, output in zip(asked, tokens["off"])])
    finding = drafter_swap_finding("all", tokens, logits, Margin(1e-4, "float32", 10_000), 3 * (len(tokens) - 1))
    assert finding.verdict is Verdict.CONFORMS, finding.summary
    counts = under_audit.metrics(under_audit.modes(K)[1])
    assert counts is not None
    assert counts["accepted"] > 0
