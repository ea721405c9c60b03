"""GREEDY: a hard margin where one exists, paired prompts where none does; noise of any shape accuses nobody."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.statistics.evidence import WrongUse
from conformance.statistics.greedy import (
    GAPS,
    NULL_SHARE,
    SHARES,
    PairedEvents,
    assert_greedy,
    assert_greedy_paired,
    earlier,
    first_gaps,
    gaps_to_top,
    hard_margin,
    paired_greedy,
    paired_log_bets,
    prompts_needed_for_wrong_tokens,
    smallest_detectable_wrong_token_rate,
)
from conformance.statistics.tolerance import difference
from conformance.studies.greedy_noise import NOISE_MODELS, PROMPT_TOKENS, greedy_arm, greedy_row

FLIPS = np.array([120, 40, 10, 2, 0.2]) / 1e6
"""A noisy bf16 engine: lawful flips per token beyond each gap."""


def test_the_hard_margin_passes_lawful_noise_and_convicts_one_wrong_token():
    rng = np.random.default_rng()
    logits = rng.normal(0, 3, (10_000, 40))
    first, second, engine = (logits + 1e-6 * rng.standard_normal(logits.shape) for _ in range(3))
    margin = hard_margin(difference(first, second), "float32")
    tokens = engine.argmax(axis=1)
    assert_greedy(tokens, logits, margin)
    runner_up = np.argsort(logits, axis=1)[:, -2]
    where = int(np.argmax(gaps_to_top(runner_up, logits) > margin.value))
    tokens[where] = runner_up[where]
    with pytest.raises(AssertionError, match=f"1 of 10000 tokens are not the reference's argmax; the first, at {where},"):
        assert_greedy(tokens, logits, margin)


def test_a_near_tie_that_flips_is_within_the_margin():
    rng = np.random.default_rng()
    logits = rng.normal(0, 3, (10_000, 40))
    logits[:, 0] = logits.max(axis=1) + 1e-7  # a near-tie at the top in every row
    engine = logits + 1e-6 * rng.standard_normal(logits.shape)
    tokens = engine.argmax(axis=1)
    assert (tokens != logits.argmax(axis=1)).any()
    margin = hard_margin(difference(logits + 1e-6 * rng.standard_normal(logits.shape), engine), "float32")
    assert_greedy(tokens, logits, margin)


def test_margins_are_refused_above_the_cap_in_low_precision_and_on_few_positions():
    rng = np.random.default_rng()
    logits = rng.normal(0, 3, (10_000, 10))
    noisy = difference(logits, logits + 0.01 * rng.standard_normal(logits.shape))
    with pytest.raises(WrongUse, match="above the cap"):
        hard_margin(noisy, "float32")
    with pytest.raises(WrongUse, match="no margin convicts in float16"):
        hard_margin(noisy, "float16")
    with pytest.raises(WrongUse, match="10000 positions"):
        hard_margin(difference(logits[:2000], logits[:2000]), "float64")


def test_paired_bets_are_fair_up_to_the_null_share_and_not_beyond():
    won, lost = (np.exp(part) for part in paired_log_bets(NULL_SHARE, SHARES))
    for share in (0.0, 0.3, 0.5, NULL_SHARE):
        assert (share * won + (1 - share) * lost).max() <= 1 + 1e-12
    assert (0.8 * won + 0.2 * lost).max() > 1


def test_the_paired_e_value_is_the_stated_mean():
    pairs = PairedEvents(("a", "b"))
    on = np.array([[1, 0], [1, 1], [1, 0]], bool)
    off = np.array([[0, 1], [0, 1], [1, 1]], bool)
    pairs.add(on, off)
    assert pairs.on_only.tolist() == [2, 0]
    assert pairs.off_only.tolist() == [0, 2]
    stated = [(t / NULL_SHARE) ** k1 * ((1 - t) / (1 - NULL_SHARE)) ** k0 for k1, k0 in ((2, 0), (0, 2)) for t in SHARES]
    assert np.exp(pairs.log_e) == pytest.approx(np.mean(stated))
    twice = PairedEvents(("a", "b"))
    twice.add(on, off)
    twice.merge(pairs)
    assert (twice.on_only == 2 * pairs.on_only).all()
    assert twice.units == 6


def test_the_first_gross_token_of_each_prompt_decides_and_ties_do_not():
    first = first_gaps([0.1, 0.6, 3.0, 0.0, 5.0], [0, 0, 2, 1, 2], 3)
    assert first[:, 0].tolist() == [1, np.inf, 0]
    assert first[:, 4].tolist() == [np.inf, np.inf, 1]
    on, off = earlier(first, np.array([[2.0] * 5, [np.inf] * 5, [0.0] * 5]))
    assert on[:, 0].tolist() == [True, False, False]
    assert off[:, 0].tolist() == [False, False, False]


def test_twice_the_flips_accuse_nobody_however_common_they_are():
    """Asking whether a prompt holds any gross token would accuse: nearly every prompt does, with speculation on.

    In 6,000 prompts that leaves evidence of 10^21 with a deviation of 10^2.
    """
    rng = np.random.default_rng()
    on, off = (greedy_arm("lognormal scale, s = 1.5", 6000, chances, 0.0, rng) for chances in (2, 1))
    assert_greedy_paired(on, off, 1e-6)
    naive = paired_greedy()
    naive.add(np.isfinite(on), np.isfinite(off))
    assert naive.log_e > np.log(1e4)


@pytest.mark.parametrize("model", ["Gaussian", "lognormal scale, s = 1.5", "Student t3", "rare jumps of scale 1 at 1e-4"])
def test_no_noise_accuses_and_wrong_tokens_are_found(model):
    rng = np.random.default_rng()
    prompts = 300
    off = greedy_arm(model, prompts, 1, 0.0, rng)
    for chances in (1, 2):  # the same noise, and twice the flips under speculation
        assert_greedy_paired(greedy_arm(model, prompts, chances, 0.0, rng), off, 1e-6)
    if "1.5" not in model:
        prompts = 800
        with pytest.raises(AssertionError, match="tokens far below the reference's top come earlier"):
            assert_greedy_paired(greedy_arm(model, prompts, 1, 1e-3, rng), greedy_arm(model, prompts, 1, 0.0, rng), 1e-6)


def test_prompts_needed_is_kept_in_simulation():
    """At the stated number of prompts wrong tokens are missed at most once in a hundred (400 runs)."""
    rng = np.random.default_rng()
    far = np.array([0.9, 0.8, 0.7, 0.5, 0.25])
    prompts = int(np.ceil(prompts_needed_for_wrong_tokens(1e-3, PROMPT_TOKENS, FLIPS, 1e-6, 1e-2)))
    assert smallest_detectable_wrong_token_rate(prompts, PROMPT_TOKENS, FLIPS, 1e-6, 1e-2) == pytest.approx(1e-3, rel=0.03)
    missed = 0
    for _ in range(400):
        gaps = []
        for rates in (1 - (1 - FLIPS) * (1 - 1e-3 * far), FLIPS):
            first = rng.geometric(rates, (prompts, 5)).astype(float)
            gaps.append(np.where(first > PROMPT_TOKENS, np.inf, first))
        account = paired_greedy()
        account.add(*earlier(*gaps))
        missed += account.log_e < np.log(1e6)
    assert missed <= 12


def test_wrong_use_is_refused():
    with pytest.raises(WrongUse, match="both arms"):
        paired_greedy().add(np.zeros((3, 5), bool), np.zeros((4, 5), bool))
    with pytest.raises(WrongUse, match="same plan"):
        paired_greedy().merge(PairedEvents(("a",)))
    with pytest.raises(WrongUse, match="between null_share and 1"):
        PairedEvents(("a",), null_share=0.8)
    with pytest.raises(WrongUse, match="without NaN"):
        gaps_to_top([0], [[np.nan, 1.0]])
    assert len(GAPS) == 5


@pytest.mark.long
@pytest.mark.parametrize("model", NOISE_MODELS)
def test_no_alarm_in_many_runs_of_a_million_tokens(model):
    row = greedy_row(model, 20, 1_000_000, np.random.default_rng())
    assert row.alarms == row.doubled_alarms == 0
