"""The smallest request whose greedy output is wrong: found, told in words, and shown again by the script that comes with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.audit import audit_engine
from conformance.controls import instance
from conformance.findings import Verdict
from conformance.harness import InProcess
from conformance.levels import Level
from conformance.protocols import Mode, Output, Request
from conformance.reporting import write
from conformance.reproduction import with_smallest
from conformance.scripts import script, sentence
from conformance.smallest_greedy import SmallestGreedy, smallest_greedy
from conformance.watcher import Silent
from specref.models import LanguageModel
from specref.processors import SamplingSettings
from tests.conformance.promising_engine import TwoModes, settings, subject
from tests.conformance.test_smallest import FACTORY, MODE, printed_by

LEVEL = Level("smallest", 400, 24, "a test", "plain", 0, 1)


class BelievesTheDraft(TwoModes):
    """At temperature 0 the draft model verifies its own drafts."""

    def processed(self, model: LanguageModel, mode: Mode, request: Request) -> LanguageModel:
        wrong = model is self.target and mode.speculates and request.settings.temperature == 0
        return super().processed(self.draft if wrong else model, mode, request)


class OnlyInCompany(TwoModes):
    """At temperature 0 all but the first of a batch get the draft model's choices."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        honest = self.target
        for row, request in enumerate(requests):
            self.target = self.draft if row and mode.speculates and request.settings.temperature == 0 else honest
            made = list(super().generate(mode, [request]))
            self.target = honest
            yield from made


def found(engine: type[TwoModes], mode: str = MODE) -> SmallestGreedy | None:
    return smallest_greedy(InProcess(engine(*instance())), mode, subject(), settings(LEVEL, max_tokens=24))


def test_one_short_request_shows_it_and_asks_for_no_more_tokens_than_it_takes() -> None:
    one = found(BelievesTheDraft)
    assert one is not None
    assert (one.k, len(one.output)) == (1, one.settings.max_tokens)
    assert len(one.prompt) <= 8
    law = instance()[0].next_law((*one.prompt, *one.output[:-1]))
    assert (one.best, one.output[-1] == one.best) == (int(law.argmax()), False)


def test_what_came_without_speculation_is_told_where_the_same_tokens_came_before() -> None:
    one = SmallestGreedy("m", (1,), 1, SamplingSettings(max_tokens=2, temperature=0.0), (5, 6), 7, 0.5, ("off", (5, 7)))
    texts = ["x"] * 8
    assert sentence(one, texts).endswith(
        "target's best is 7 (“x”), 0.5 logits above it; without speculation token 7 (“x”) came"
    )
    assert sentence(replace(one, control=("off", (4, 7))), texts).endswith("; without speculation another output came")
    assert sentence(replace(one, control=None), texts).endswith("0.5 logits above it")


@pytest.mark.parametrize("engine", [TwoModes, OnlyInCompany])
def test_an_engine_that_answers_every_request_alone_right_has_none(engine: type[TwoModes]) -> None:
    assert found(engine) is None


def test_the_script_shows_what_the_sentence_says(tmp_path: Path) -> None:
    one = found(BelievesTheDraft)
    assert one is not None
    assert one.control is not None
    said = sentence(one, subject().texts)
    assert said.startswith(f"at temperature 0, with a prompt of {len(one.prompt)} token")
    assert f"is token {one.output[-1]} (“" in said
    assert f"the target's best is {one.best} (“" in said
    text = script(FACTORY, one, said, own_models=False, file="smallest.py")
    assert len(text.splitlines()) < 40
    assert f"SamplingSettings(max_tokens={one.settings.max_tokens}, temperature=0, eos={one.settings.eos!r})" in text
    assert printed_by(text, BelievesTheDraft, tmp_path) == [
        f"{one.control[0]}: {one.control[1]}",
        f"{MODE}: {one.output}",
        f"position {one.place}: after {one.output[:-1]} the target's best is {one.best}",
    ]


def test_an_audit_has_the_script_beside_its_report(tmp_path: Path) -> None:
    start = lambda: InProcess(BelievesTheDraft(*instance()))  # noqa: E731
    asked = settings(LEVEL, max_tokens=24)
    report = audit_engine("faulty", start, subject(), asked)
    told = with_smallest(report, start, FACTORY, subject(), asked, Silent(), own_models=True)
    one = next(one for one in told.findings if (one.requirement, one.mode) == ("GREEDY-1", MODE))
    assert one.verdict is Verdict.VIOLATES
    assert one.violations[0].startswith("the smallest case that was found: at temperature 0, with a prompt of ")
    files = write([told], tmp_path)
    names = [path.name for path in tmp_path.glob("smallest-greedy-*.py")]
    assert names == [f"smallest-greedy-{told.engine.replace(' ', '-')}-draft-model-ratio.py"]
    assert f"python {names[0]}, which lies beside the report" in files.markdown.read_text()


def test_a_fault_that_needs_company_keeps_its_words() -> None:
    start = lambda: InProcess(OnlyInCompany(*instance()))  # noqa: E731
    asked = settings(LEVEL, max_tokens=24)
    told = with_smallest(audit_engine("faulty", start, subject(), asked), start, FACTORY, subject(), asked, Silent(), True)
    one = next(one for one in told.findings if (one.requirement, one.mode) == ("GREEDY-1", MODE))
    assert (
        one.violations[0] == "no small case shows it: those that were tried, each alone in a fresh process, are answered right"
    )
    assert one.violations[1].startswith("the shortest: prompt ")
