"""GREEDY: one-ulp noise in windows is explained, wrong tokens are not, and no margin above the cap decides anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from conformance.checks.greedy import (
    Arm,
    FirstDivergence,
    drafter_swap_finding,
    greedy_finding,
    paired_greedy_finding,
    row_variance_finding,
)
from conformance.components import Logits
from conformance.findings import Finding, Verdict
from conformance.protocols import Tokens
from conformance.scoring import TableScorer
from conformance.statistics import WrongUse
from conformance.statistics.greedy import Margin
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.drafters.prompt_lookup import PromptLookup
from specref.generate import Drafter, GreedyDrafter, NoDrafter, generate
from specref.laws import Law
from specref.models import TableModel, softmax
from specref.rules import Rule, Verified
from specref.rules.chain import greedy
from specref.stopping import Stops

V, K, LENGTH, PROMPTS = 8, 3, 24, 20
ULP = float(np.spacing(np.float32(1)))
MARGIN = Margin(8 * ULP, "float32", 10_000)
TARGET = TableModel(V, "target", "mixed", memory=3, exact=False)
"""Half of its rows have several best tokens."""
SMALL = TableModel(V, "small", "plain", memory=3, exact=False)
TEXTS = [(i % V, i // V, 3) for i in range(PROMPTS)]


class NoisyInWindows:
    """The target with logits of float32 that change by an ulp with the width of the pass: what kernels do lawfully."""

    vocabulary = V

    def next_law(self, context: Tokens) -> Law:
        return self.next_laws(context, ())[0]

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[Law]:
        return list(softmax(self.rows(context, drafted)))

    def rows(self, context: Tokens, drafted: Tokens) -> np.ndarray:
        with np.errstate(divide="ignore"):
            exact = np.log(np.array(TARGET.next_laws(context, drafted)))
        rng = np.random.default_rng([len(drafted), *context])
        return exact + rng.choice([-ULP, 0.0, ULP], size=exact.shape)


DRAFTERS: dict[str, Drafter] = {"draft model": GreedyDrafter(SMALL), "prompt lookup": PromptLookup(longest=2)}


def outputs(drafter: Drafter, rule: Rule = greedy) -> list[Tokens]:
    return [
        generate(NoisyInWindows(), drafter, rule, text, k=K, stops=Stops(LENGTH), chance=SampledChance(0)).tokens
        for text in TEXTS
    ]


def scored(found: Sequence[Tokens]) -> list[np.ndarray]:
    return TableScorer(TARGET).logits(list(zip(TEXTS, found)))


def first_unverified(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    if not draft.tokens:
        return greedy(p, draft, chance)
    rest = greedy(p[1:], Draft.chosen(draft.tokens[1:]), chance)
    return replace(rest, accepted=rest.accepted + 1)


def bonus_of_the_row_before(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    verified = greedy(p, draft, chance)
    return replace(verified, next_token=int(p[max(0, verified.accepted - 1)].argmax()))


WRONG_RULES: dict[str, Rule] = {
    "first draft token unverified": first_unverified,
    "the bonus of the row before": bonus_of_the_row_before,
}


# GREEDY-1


def test_noise_of_an_ulp_in_windows_is_explained() -> None:
    found = outputs(DRAFTERS["draft model"])
    finding = greedy_finding("m", found, scored(found), MARGIN, PROMPTS)
    assert finding.verdict is Verdict.CONFORMS, finding.summary
    assert "differ by a near-tie within the numerical margin" in finding.summary
    assert found != outputs(NoDrafter())


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_token_at_a_wide_margin_fails(name: str) -> None:
    found = outputs(DRAFTERS["draft model"], WRONG_RULES[name])
    finding = greedy_finding("m", found, scored(found), MARGIN, PROMPTS)
    assert finding.verdict is Verdict.VIOLATES
    assert "the target's best is" in finding.violations[0]


@pytest.mark.parametrize(
    ("margin", "problem"),
    [
        (Margin(2e-3, "float32", 10_000), "above the cap of 0.001 for float32"),
        (Margin(1e-8, "float64", 10_000), "above the cap of 1e-09 for float64"),
        (Margin(float("nan"), "float64", 10_000), "above the cap"),
        (Margin(1e-9, "bfloat16", 10_000), "no margin convicts in bfloat16"),
    ],
)
def test_a_margin_above_the_cap_is_refused(margin: Margin, problem: str) -> None:
    found = outputs(NoDrafter())
    checks: list[Callable[[], Finding]] = [
        lambda: greedy_finding("m", found, scored(found), margin, PROMPTS),
        lambda: row_variance_finding("m", Logits(np.zeros((1, V)), np.zeros((1, V))), margin, 1),
        lambda: drafter_swap_finding("m", {"one": found, "other": found}, scored(found), margin, PROMPTS),
    ]
    for check in checks:
        with pytest.raises(WrongUse, match=problem):
            check()


# GREEDY-2: bfloat16. Logits of a reference; the engine takes the best after noise, now and then a wrong token.


def arm(noise: float, wrong: float, seed: int, prompts: int = 300, length: int = 48) -> Arm:
    """Both arms of a seed continue the same prompts; each token has logits of its own."""
    rng = np.random.default_rng([seed, int(1000 * noise), int(1e4 * wrong)])
    logits = rng.normal(scale=2, size=(prompts, length, 16))
    chosen = (logits + rng.normal(scale=noise, size=logits.shape)).argmax(axis=2)
    any_token = rng.integers(16, size=chosen.shape)
    chosen = np.where(rng.random(chosen.shape) < wrong, any_token, chosen)
    return Arm([tuple(row.tolist()) for row in chosen], list(logits))


PAIRED = {
    "one token in a hundred wrong": 0.01,
    "three tokens in a hundred wrong": 0.03,
}
"""Their evidence was 10^15 and more in six runs each; 10^6 convicts."""
SEED = int(np.random.default_rng().integers(10**6))


@pytest.mark.parametrize("name", PAIRED)
def test_wrong_tokens_in_low_precision_are_killed(name: str) -> None:
    finding = paired_greedy_finding("m", arm(0.1, PAIRED[name], SEED), arm(0.1, 0, SEED + 1), 300)
    assert finding.verdict is Verdict.VIOLATES, finding.summary
    assert finding.violations[0].startswith("prompt ")
    assert "logits below it" in finding.violations[0]


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.15])
def test_noise_in_low_precision_is_lawful_even_where_windows_add_some(noise: float) -> None:
    """A tenth more noise makes less than twice the flips. (Four tenths more make four times as many, and may be called.)"""
    finding = paired_greedy_finding("m", arm(noise * 1.1, 0, SEED), arm(noise, 0, SEED + 1), 300)
    assert finding.verdict is Verdict.CONFORMS, finding.summary
    assert finding.detects.startswith("wrong tokens at a rate of 0.0")


def test_paired_prompts_must_be_pairs_and_enough() -> None:
    few = arm(0.1, 0, 1, prompts=5)
    assert paired_greedy_finding("m", few, arm(0.1, 0, 2, prompts=4), 5).verdict is Verdict.ERROR
    assert paired_greedy_finding("m", few, arm(0.1, 0, 2, prompts=5), 300).verdict is Verdict.INCONCLUSIVE
    silent = Arm([()] * 5, [np.zeros((0, 16))] * 5)
    assert paired_greedy_finding("m", silent, silent, 5).verdict is Verdict.CONFORMS


# GREEDY-3


def windows(wrong: Callable[[np.ndarray, Tokens, Tokens], np.ndarray] | None = None) -> Logits:
    """Rows of windows of three drafts, beside the same rows read alone."""
    together, alone, model = [], [], NoisyInWindows()
    for text in TEXTS:
        drafted = (text[1], text[0], 5)
        rows = model.rows(text, drafted)
        together.append(rows if wrong is None else wrong(rows, text, drafted))
        alone += [model.rows(text + drafted[:i], ())[0] for i in range(len(drafted) + 1)]
    return Logits(np.concatenate(together), np.array(alone))


def off_by_one(rows: np.ndarray, text: Tokens, drafted: Tokens) -> np.ndarray:
    return np.concatenate([rows[:1], rows[:-1]])


def last_draft_unseen(rows: np.ndarray, text: Tokens, drafted: Tokens) -> np.ndarray:
    return np.concatenate([rows[:-1], NoisyInWindows().rows(text + drafted[:-1], ())])


WRONG_WINDOWS = {
    "a window's rows off by one": off_by_one,
    "a window's last row does not see the draft before it": last_draft_unseen,
}


def test_a_row_alone_and_inside_the_window() -> None:
    finding = row_variance_finding("m", windows(), MARGIN, 4 * PROMPTS)
    assert finding.verdict is Verdict.CONFORMS, finding.summary
    assert "argmaxes turn, at a top-2 margin of at most" in finding.summary


@pytest.mark.parametrize("name", WRONG_WINDOWS)
def test_a_wrong_window_is_killed(name: str) -> None:
    names = [f"prompt {i}, row {j}" for i in range(PROMPTS) for j in range(4)]
    finding = row_variance_finding("m", windows(WRONG_WINDOWS[name]), MARGIN, 1, names)
    assert finding.verdict is Verdict.VIOLATES
    assert finding.violations[0].startswith("prompt 0, row ")


def test_windows_may_be_hidden_or_too_few() -> None:
    assert row_variance_finding("m", None, MARGIN, 1).verdict is Verdict.NOT_EXPOSED
    assert row_variance_finding("m", windows(), MARGIN, 500).verdict is Verdict.INCONCLUSIVE
    assert row_variance_finding("m", Logits(np.zeros((1, 2)), np.zeros((1, 3))), MARGIN, 1).verdict is Verdict.ERROR


# GREEDY-4


def swap(rule: Rule = greedy) -> Finding:
    found = {name: outputs(drafter, rule) for name, drafter in DRAFTERS.items()}
    return drafter_swap_finding("m", found, scored(found["draft model"]), MARGIN, PROMPTS)


def test_the_output_does_not_depend_on_the_drafter() -> None:
    finding = swap()
    assert finding.verdict is Verdict.CONFORMS, finding.summary
    assert "part at an explained near-tie" in finding.summary


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_drafter_that_changes_the_output_is_found(name: str) -> None:
    finding = swap(WRONG_RULES[name])
    assert finding.verdict is Verdict.VIOLATES
    assert finding.violations[0].startswith("drafter 'prompt lookup', prompt ")
    assert "(top-2 margin " in finding.violations[0]


def test_an_output_that_ends_early_is_no_near_tie() -> None:
    rows = np.zeros((2, 4))
    for one, other in (((1, 2), (1,)), ((1,), (1, 2))):
        parted = FirstDivergence.of(one, other, rows[: len(one)])
        assert parted is not None
        assert not parted.explained(MARGIN)
        assert "the end of the output" in str(parted.place("prompt 0"))
    assert FirstDivergence.of((1, 2), (1, 2), rows) is None


def test_a_swap_needs_two_drafters_and_the_same_prompts() -> None:
    assert drafter_swap_finding("m", {"one": [(1,)]}, [np.zeros((1, 4))], MARGIN, 1).verdict is Verdict.NOT_EXPOSED
    two = {"one": [(1,)], "other": [(1,), (2,)]}
    assert drafter_swap_finding("m", two, [np.zeros((1, 4))], MARGIN, 1).verdict is Verdict.ERROR
