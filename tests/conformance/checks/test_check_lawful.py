"""Lawful variations pass every check: what people report as faults and is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from conformance.checks.accept import acceptance_finding, looked_at, metrics_finding, self_draft_finding
from conformance.checks.batch import company_finding, row_law_finding
from conformance.checks.draft import hostile_finding
from conformance.checks.loud import Tried, declared_finding, loud_findings, probes
from conformance.checks.seed import independence_finding, repeat_findings
from conformance.checks.stop import stop_findings
from conformance.controls import instance
from conformance.engines.own import ReferenceEngine
from conformance.findings import Finding, Verdict
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.scoring import TableScorer
from conformance.statistics.greedy import Margin
from specref.chance import Chance
from specref.draft import Draft
from specref.generate import Drafter, GreedyDrafter, ModelDrafter
from specref.models import TableModel
from specref.processors import SamplingSettings
from specref.rules import Rule
from specref.rules.block import block

V, K, LENGTH = 16, 3, 12
EXACT = Margin(0.0, "float64", 10_000)
SEED = int(np.random.default_rng().integers(10**6))


class Variation(ReferenceEngine):
    """The reference with a rule and a drafter of its own."""

    def __init__(self, mode: Mode, draft: Callable[[TableModel], Drafter] | None = None) -> None:
        super().__init__(*instance())
        self.mode, self.made = mode, draft

    def rule(self, mode: Mode, request: Request) -> Rule:
        return block if mode.rule == "block" and request.settings.temperature > 0 else super().rule(mode, request)

    def drafter(self, mode: Mode, request: Request) -> Drafter:
        if self.made is None or request.settings.temperature == 0:
            return super().drafter(mode, request)
        return self.made(self.processed(self.draft, mode, request))  # type: ignore[arg-type]

    def answers(self, requests: list[Request]) -> list[Output]:
        return list(self.generate(self.mode, requests))


def mode(rule: str, drafter: str = "model") -> Mode:
    return Mode(
        rule, {"drafter": drafter, "k": K}, rule, "draft model" if drafter == "model" else "n-gram", exposes_rounds=True
    )


def dynamic_k(model: TableModel) -> Drafter:
    """Ends a draft after a token that the draft itself finds unlikely; that token is kept."""
    return ModelDrafter(model, stop=lambda token, law: bool(law[token] < 0.3))


VARIATIONS = {
    "ratio": lambda: Variation(mode("ratio")),
    "token matching of a sampled draft": lambda: Variation(mode("token_matching")),
    "one-hot verification of a sampled draft": lambda: Variation(mode("one_hot"), ModelDrafter),
    "one-hot verification of a greedy draft": lambda: Variation(mode("one_hot"), GreedyDrafter),
    "n-gram drafts": lambda: Variation(mode("one_hot", "copy")),
    "block verification": lambda: Variation(mode("block"), ModelDrafter),
    "dynamic k decided from what was kept": lambda: Variation(mode("ratio"), dynamic_k),
}


def requests(number: int, seed: int, **settings: object) -> list[Request]:
    kept = SamplingSettings(max_tokens=LENGTH, **settings)  # type: ignore[arg-type]
    return [Request((i // 8 % V, i // 8 * 7 % V), kept, seed * 10_007 + i) for i in range(number)]


def laws(model: TableModel, asked: list[Request], outputs: list[Output]) -> list[np.ndarray]:
    return [np.exp(rows) for rows in logits(model, asked, outputs)]


def logits(model: TableModel, asked: list[Request], outputs: list[Output]) -> list[np.ndarray]:
    return TableScorer(model).logits([(one.prompt, output.tokens) for one, output in zip(asked, outputs)])


@cache
def findings(name: str) -> list[Finding]:
    """Every check of outputs on one variation, sampled."""
    engine = VARIATIONS[name]()
    target, draft = instance()
    asked = requests(240, SEED)
    outputs = engine.answers(asked)
    p, q = laws(target, asked, outputs), laws(draft, asked, outputs)
    tokens = [output.tokens for output in outputs]
    n = sum(map(len, tokens))
    found = [declared_finding(engine.mode), metrics_finding(name, None, outputs, 1)]
    found += repeat_findings(name, outputs[:16], engine.answers(asked[:16]), engine.answers(asked)[:16], 16, promised=True)
    found.append(independence_finding(name, tokens, p, n, prompts=[one.prompt for one in asked], rows=8, seed=SEED))
    found.append(row_law_finding(name, tokens, list(zip(p, q)), np.arange(len(asked)) % 4, n, seed=SEED))
    steps = looked_at(outputs, p, q)
    found.append(acceptance_finding(name, engine.mode.rule, *steps, planned=1))
    ended = [
        replace(one, settings=replace(one.settings, eos=(3, 5), stop_sequences=((1, 2), (7,)), min_tokens=i % 3))
        for i, one in enumerate(asked)
    ]
    found += stop_findings(name, ended, engine.answers(ended), 1)
    return found


@pytest.mark.parametrize("name", VARIATIONS)
def test_a_lawful_variation_passes_every_check(name: str) -> None:
    found = findings(name)
    wrong = [one.summary for one in found if one.verdict not in (Verdict.CONFORMS, Verdict.NOT_PROMISED)]
    assert not wrong, (SEED, wrong)
    unpromised = {one.requirement for one in found if one.verdict is Verdict.NOT_PROMISED}
    assert unpromised == ({"ACCEPT-1"} if name == "block verification" else set())
    assert {"STOP-1", "STOP-5", "SEED-3", "BATCH-1", "ACCEPT-3"} <= {one.requirement for one in found}


def test_settings_are_obeyed_under_speculation() -> None:
    target, _ = instance()
    engine = VARIATIONS["ratio"]()
    tried = []
    for probe in probes(6, banned=[1, 2, 3], eos=[4, 5]):
        asked = [replace(one, settings=probe.settings) for one in requests(24, SEED)]
        outputs = engine.answers(asked)
        tried.append(Tried(probe, asked, outputs, logits(target, asked, outputs)))
    found = loud_findings("m", tried, margin=1e-9, planned=len(tried))
    assert found.verdict is Verdict.CONFORMS, (SEED, found.summary)


class Hostile:
    """Drafts one token again and again, or the least likely one."""

    def __init__(self, worst_of: TableModel | None = None) -> None:
        self.model = worst_of

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        if self.model is None:
            return Draft.chosen((0,) * k)
        tokens: Tokens = ()
        for _ in range(k):
            tokens += (int(self.model.next_law(context + tokens).argmin()),)
        return Draft.chosen(tokens)


def test_hostile_drafts_and_company_change_nothing_at_temperature_0() -> None:
    target, _ = instance()
    asked = requests(40, SEED, temperature=0.0)
    usual = VARIATIONS["ratio"]().answers(asked)
    tokens = [one.tokens for one in usual]
    hostile = {}
    for name, drafter in (("constant", Hostile()), ("always wrong", Hostile(target))):
        engine = Variation(mode("one_hot"))
        engine.drafter = lambda mode, request, drafter=drafter: drafter  # type: ignore[method-assign]
        hostile[name] = [one.tokens for one in engine.answers(asked)]
    rows = logits(target, asked, usual)
    assert hostile_finding("m", tokens, hostile, 80, logits=rows, margin=EXACT).verdict is Verdict.CONFORMS
    assert company_finding(
        "m", tokens, {"n-grams": [o.tokens for o in VARIATIONS["n-gram drafts"]().answers(asked)]}, 40
    ).verdict is (Verdict.CONFORMS)


def test_a_target_that_drafts_for_itself_is_accepted() -> None:
    target, _ = instance()
    engine = Variation(mode("ratio"))
    engine.draft = target
    asked = requests(40, SEED, temperature=0.0)
    outputs = engine.answers(asked)
    assert self_draft_finding("m", outputs, logits(target, asked, outputs), EXACT, 100).verdict is Verdict.CONFORMS
