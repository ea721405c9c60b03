"""The judge of one mode, planning, adaptive contexts and single checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from statistics_laws import draw, random_laws

from conformance.statistics import (
    BetTable,
    FaultBank,
    Ledger,
    ModeJudge,
    ModePlan,
    Plan,
    Segment,
    Threshold,
    TokenBlock,
    WrongUse,
    leak,
    temperature,
)
from conformance.statistics.adaptive import growth_rates, next_contexts
from conformance.statistics.fixed_laws import FixedLaws
from conformance.statistics.planning import tokens_by_markov
from conformance.statistics.simulated import assert_no_shape, samples_needed_for_shape, smallest_detectable_shape
from conformance.statistics.trios import (
    assert_chi_square,
    assert_follows_law,
    assert_independent,
    assert_ks,
    assert_same_law,
    samples_needed_by_chi_square,
    samples_needed_by_ks,
    samples_needed_for_independence,
    samples_needed_for_same_law,
    samples_needed_to_follow_law,
    smallest_detectable_against_law,
    smallest_detectable_by_chi_square,
    smallest_detectable_by_ks,
    smallest_detectable_dependence,
    smallest_detectable_of_same_law,
)
from conformance.studies import power_contexts
from conformance.studies.joint import FAULTS, simulate
from conformance.studies.null_runs import from_streams
from conformance.studies.power_joint import run_once

COUNTS_PLAN = ModePlan("m", 1.0, {"bank": 0.8, "omnibus": 0.15, "likelihood": 0.02, "chi-square": 0.015, "ks": 0.015}, 600)


def test_counts_and_stream_give_the_same_evidence():
    p, q = random_laws(1, 8, 1)
    tokens = np.random.default_rng(0).choice(8, 1000, p=p[0])
    by_counts, by_stream = ModeJudge(COUNTS_PLAN, 1), ModeJudge(COUNTS_PLAN, 2)
    by_stream.observe(TokenBlock(tokens, np.tile(p, (1000, 1)), np.tile(q, (1000, 1))))
    laws = by_counts.fixed_laws(p[0], q[0])
    for part in (tokens[:550], tokens[550:]):
        by_counts.observe_counts(laws, np.bincount(part, minlength=8))
    ours, theirs = ({e.check: e for e in judge.evidence()} for judge in (by_counts, by_stream))
    assert ours["bank"].log_e == pytest.approx(theirs["bank"].log_e)
    assert ours["likelihood"].log_e == pytest.approx(theirs["likelihood"].log_e)
    assert ours["omnibus"].n == theirs["omnibus"].n == 1000
    assert ours["ks"].n == theirs["ks"].n == 600  # the registered n, in the middle of a batch of counts


def test_judge_names_what_it_needs():
    p, q = random_laws(10, 4, 1)
    with pytest.raises(WrongUse, match="planned with a draft"):
        ModeJudge(COUNTS_PLAN, 1).observe(TokenBlock(np.zeros(10, int), p))
    with pytest.raises(WrongUse, match="own bank"):
        ModeJudge(COUNTS_PLAN, 1).observe_counts(ModeJudge(COUNTS_PLAN, 2).fixed_laws(p[0], q[0]), np.ones(4, int))
    with pytest.raises(WrongUse, match="not those sealed"):
        ModeJudge(COUNTS_PLAN, 1, ())
    with pytest.raises(WrongUse, match="take p at its word"):
        ModePlan("m", 1.0, {"bank": 0.5, "omnibus": 0.5}, 10, eta=0.1)


def test_without_a_draft_law_the_judge_still_sees_temperature():
    p, _ = random_laws(20_000, 16, 3)
    cooled = p**1.2 / (p**1.2).sum(axis=1, keepdims=True)
    mode = ModePlan.standard("m", 5_000, has_q=False, segments=False, slots=False, batch=False)
    ledger = Ledger(Plan((mode,)), "run", 1)
    ledger.observe("m", TokenBlock(draw(cooled, np.random.default_rng(0)), p))
    verdict = ledger.look()
    assert verdict.failed
    assert any("temperature" in named.holder for named in verdict.named)


def test_noise_within_the_tolerance_is_no_fault_and_a_leak_is():
    rng = np.random.default_rng(1)
    logits = 2 * rng.normal(size=16)
    p = np.exp(logits) / np.exp(logits).sum()
    q = np.exp(logits + rng.normal(size=16))
    q /= q.sum()
    noisy = p * np.exp(0.15 * rng.choice([-1, 1], 16))
    noisy /= noisy.sum()
    n = 6_000
    failed = {}
    for eta in (0.0, 0.15):
        for name, law in (("noise", noisy), ("leak", 0.4 * noisy + 0.6 * q)):
            mode = ModePlan.standard("m", n, eta=eta, segments=False, slots=False, batch=False)
            ledger = Ledger(Plan((mode,), 1e-3), "run", 1)
            tokens = rng.choice(16, n, p=law)
            ledger.observe("m", TokenBlock(tokens, np.tile(p, (n, 1)), np.tile(q, (n, 1)), request=np.arange(n)))
            failed[eta, name] = ledger.look().failed
    assert failed == {(0.0, "noise"): True, (0.0, "leak"): True, (0.15, "noise"): False, (0.15, "leak"): True}


EOS_LAWS = FixedLaws(FaultBank(), np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1]))


def early_stoppers(requests: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A correct engine: every token is EOS (0) with probability .2, else one of two others; at most 40 tokens."""
    tokens = rng.choice(3, (requests, 40), p=EOS_LAWS.p)
    stopped = tokens == 0
    lengths = np.where(stopped.any(axis=1), stopped.argmax(axis=1) + 1, 40)
    return [row[:length] for row, length in zip(tokens, lengths)]


def judged(outputs: list[np.ndarray]) -> float:
    """log10 E of the bank on all tokens of these requests; q is a lawful bet on EOS."""
    counts = np.bincount(np.concatenate(outputs), minlength=3)
    return EOS_LAWS.bank.evidence(EOS_LAWS.log_table @ counts, int(counts.sum())).log10_e


def test_order_of_submission_accuses_nobody_and_completed_first_does():
    """256 requests in flight, one token each per step, looked at after every second step."""
    alarms = {"submission": 0, "completed first": 0}
    for run in range(200):
        outputs = early_stoppers(256, np.random.default_rng([7, run]))
        length = np.array([len(o) for o in outputs])
        worst = dict.fromkeys(alarms, -math.inf)
        for step in (2, 4, 8, 16):
            finished = length <= step
            prefix = len(outputs) if finished.all() else int(np.argmin(finished))
            if prefix:
                worst["submission"] = max(worst["submission"], judged(outputs[:prefix]))
            done = [o for o, f in zip(outputs, finished) if f]
            worst["completed first"] = max(worst["completed first"], judged(done))
        for name in alarms:
            alarms[name] += worst[name] >= 6
    assert alarms["submission"] == 0
    assert alarms["completed first"] == 200


def test_planning_bound_is_one_bet_worked_by_hand():
    # A coin that shows heads 90%, bet at 3 to 1: E r b^-t = .9 (1.5)^-t + .1 (.5)^-t, smallest t by search.
    log_bet, fault = np.log([[1.5, 0.5]]), np.log([[0.9, 0.1]])
    found = tokens_by_markov(fault, log_bet, np.zeros(1), 13.8, 6.9)
    by_hand = min((t * 13.8 + 6.9) / -math.log(0.9 * 1.5**-t + 0.1 * 0.5**-t) for t in np.linspace(0.05, 1.5, 2_000))
    assert found == pytest.approx(math.ceil(by_hand), abs=1)
    assert tokens_by_markov(np.log([[0.5, 0.5]]), log_bet, np.zeros(1), 13.8, 6.9) is None
    never = np.full((1, 1), -np.inf)  # a token that neither the fault nor the bet gives changes nothing
    assert tokens_by_markov(np.hstack([fault, never]), np.hstack([log_bet, never]), np.zeros(1), 13.8, 6.9) == found
    ruined = np.hstack([log_bet[:, :1], never])  # nothing is left once the fault gives its other token
    assert tokens_by_markov(fault, ruined, np.zeros(1), 13.8, 6.9) is None


def test_planned_samples_and_smallest_detectable_agree_and_hold():
    p, q = random_laws(1, 12, 9)
    table, threshold = BetTable(FaultBank(), p, q), Threshold(1e-6, 0.6)
    for ray in (leak(p, q), temperature(p)):
        size = table.smallest_detectable(ray, 5_000, threshold)
        planned = table.samples_needed(ray(size), threshold)
        assert planned.tokens == pytest.approx(5_000, rel=0.02)
        assert table.samples_needed(ray(size * 1.2), threshold).tokens < 5_000
        counts = np.random.default_rng(0).multinomial(planned.tokens, ray(size)[0], size=400)
        log_bets = np.array([table.log_bet(j)[0] for j in range(len(table.bank))])
        wealth = np.logaddexp.reduce(counts @ log_bets.T + table.bank.log_prior, axis=1)
        missed = int((wealth < threshold.log_e).sum())
        assert binom.sf(missed - 1, 400, 1e-3) > 1e-6


def test_planning_over_contexts_takes_the_mean_of_logarithms():
    p, q = random_laws(1, 6, 2)
    twice = BetTable(FaultBank(), np.tile(p, (2, 1)), np.tile(q, (2, 1)))
    once = BetTable(FaultBank(), p, q)
    law = 0.9 * p + 0.1 * q
    assert twice.samples_needed(np.tile(law, (2, 1))) == once.samples_needed(law)
    diluted = BetTable(FaultBank(), np.concatenate([p, p]), np.concatenate([q, p]))
    assert diluted.samples_needed(np.concatenate([law, p])).tokens > 1.9 * once.samples_needed(law).tokens


def test_leaving_out_a_law_costs_samples():
    p, q = random_laws(1, 12, 9)
    table = BetTable(FaultBank(), p, q)
    law = 0.9 * p + 0.1 * q
    planned = table.samples_needed(law)
    without = table.samples_needed(law, without=frozenset({planned.bet.split(",")[0]}))
    assert without is None or without.tokens > planned.tokens


def test_contexts_are_chosen_where_the_holder_grows():
    bank = FaultBank()
    p, q = random_laws(5, 8, 4)
    q[:4] = p[:4]  # only context 4 can show a leak
    rates = growth_rates(bank, p, q)
    wealth = np.where([name.startswith("leak") for name in bank.names], 5.0, 0.0)
    chosen = next_contexts(bank, wealth, rates, 1_000, np.random.default_rng(0))
    share = float((chosen == 4).mean())
    assert 0.93 < share < 0.98  # nineteen twentieths and a fifth of the last
    with pytest.raises(WrongUse, match="at least one"):
        next_contexts(bank, wealth, rates, 0, np.random.default_rng(0))


def test_adaptive_contexts_save_tokens_and_accuse_nobody():
    rng = np.random.default_rng(3)
    pool = power_contexts.pool()
    laws = power_contexts.faulty_laws(pool, "leak 10%")
    uniform, adaptive = (
        np.median([power_contexts.tokens_to_detect(pool, laws, mode, rng) for _ in range(9)]) for mode in (False, True)
    )
    assert uniform > 1.5 * adaptive
    correct = power_contexts.faulty_laws(pool, "")
    alarms = sum(np.isfinite(power_contexts.tokens_to_detect(pool, correct, True, rng, 600, 0.01)) for _ in range(60))
    assert binom.sf(alarms - 1, 60, 0.01) > 1e-6


def test_mixture_of_products_beats_product_of_mixtures():
    product, separate = power_contexts.mixture_of_products(300, 0.03, 300, np.random.default_rng(0))
    assert product > math.log(1e6)
    assert separate < 0


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "leak 3%"])
def test_joint_faults_are_found_by_the_ledger(fault):
    found, _ = run_once(fault, 1, 1 << 11)
    assert found.get("ledger", math.inf) <= 1 << 11


def test_correct_streams_raise_no_alarm():
    for rate in from_streams(6, np.random.default_rng(2), requests=64):
        assert binom.sf(rate.alarms - 1, rate.runs, rate.nominal) > 1e-6, rate


def test_accepted_and_replaced_tokens_need_the_declared_rule():
    run = simulate(64, "", np.random.default_rng(0))
    block = run.block()
    assert set(np.unique(block.segment)) == {Segment.ACCEPTED, Segment.RESIDUAL, Segment.BONUS}
    undeclared = ModePlan.standard("m", 100, k=3)
    assert "accepted" not in undeclared.checks
    assert "accepted" in ModePlan.standard("m", 100, k=3, ratio_rule=True).checks


P, Q = random_laws(1, 12, 9)
P, Q = P[0], Q[0]
LEAKING = 0.5 * P + 0.5 * Q


def test_law_trio():
    rng = np.random.default_rng(0)
    n = samples_needed_to_follow_law(LEAKING, P, Q, 1e-6, 1e-3)
    with pytest.raises(AssertionError, match="log10 E"):
        assert_follows_law(rng.multinomial(n, LEAKING), P, Q, 1e-6, rng)
    assert assert_follows_law(rng.multinomial(n, P), P, Q, 1e-6, rng) < 6
    size = smallest_detectable_against_law(lambda s: (1 - s) * P + s * Q, n, P, Q, 1e-6, 1e-3)
    assert size == pytest.approx(0.5, rel=0.02)


def test_chi_square_trio():
    rng = np.random.default_rng(0)
    tv = 0.5 * np.abs(LEAKING - P).sum()
    n = samples_needed_by_chi_square(tv, 12, 1e-3, 1e-3)
    assert smallest_detectable_by_chi_square(n, 12, 1e-3, 1e-3) == pytest.approx(tv, rel=0.01)
    with pytest.raises(AssertionError, match="ranks at"):
        assert_chi_square(rng.multinomial(2 * n, LEAKING), P, 1e-3, rng)
    assert assert_chi_square(rng.multinomial(2 * n, P), P, 1e-3, rng) > 1e-3
    with pytest.raises(WrongUse, match="too many null tables"):
        assert_chi_square(rng.multinomial(n, P), P, 1e-6, rng)


def test_ks_trio():
    distance = np.abs(np.cumsum(LEAKING - P)).max()
    n = samples_needed_by_ks(distance, 1e-6, 1e-3)
    assert smallest_detectable_by_ks(n, 1e-6, 1e-3) == pytest.approx(distance, rel=0.01)
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="apart"):
        assert_ks(rng.multinomial(n, LEAKING), P, 1e-6)
    assert assert_ks(rng.multinomial(n, P), P, 1e-6) > 1e-6


def test_two_sample_trio():
    rng = np.random.default_rng(0)
    tv = 0.5 * np.abs(LEAKING - P).sum()
    n = samples_needed_for_same_law(tv, 12, 1e-2, 1e-3)
    assert smallest_detectable_of_same_law(n, 12, 1e-2, 1e-3) == pytest.approx(tv, rel=0.02)
    with pytest.raises(AssertionError, match="ranks at"):
        assert_same_law(rng.multinomial(2 * n, P), rng.multinomial(2 * n, LEAKING), 1e-2, rng)
    assert assert_same_law(rng.multinomial(n, P), rng.multinomial(n, P), 1e-3, rng) > 1e-3
    with pytest.raises(AssertionError, match="apart"):
        assert_same_law(rng.multinomial(40 * n, P), rng.multinomial(40 * n, LEAKING), 1e-6, rng)


def test_independence_trio():
    rng = np.random.default_rng(0)
    n = int(samples_needed_for_independence(0.3, 1e-6, 1e-3))
    assert smallest_detectable_dependence(n, 1e-6, 1e-3) == pytest.approx(0.3, rel=0.02)
    u, v, thin = rng.random((3, 10 * n))
    kept = thin < (1 + 0.9 * (2 * u - 1) * (2 * v - 1)) / 1.9  # rejection from density 1 + 3 * .3 (2u-1)(2v-1)
    pairs = np.stack([u[kept], v[kept]], axis=1)[:n]
    assert len(pairs) == n
    with pytest.raises(AssertionError, match="log10 E"):
        assert_independent(pairs, 1e-6)
    assert assert_independent(rng.random((n, 2)), 1e-6) < 6


def test_omnibus_trio():
    rng = np.random.default_rng(0)
    n = int(samples_needed_for_shape(LEAKING, P, Q, 1e-6, 1e-2, rng, runs=100))
    missed = 0
    for _ in range(20):
        try:
            assert_no_shape(rng.multinomial(n, LEAKING)[None], P, Q, 1e-6, rng)
            missed += 1
        except AssertionError:
            pass
    assert binom.sf(missed - 1, 20, 0.05) > 1e-6
    assert assert_no_shape(rng.multinomial(n, P, size=3), P, Q, 1e-6, rng) < 6
    size = smallest_detectable_shape(lambda s: (1 - s) * P + s * Q, n, P, Q, 1e-6, 1e-2, rng, runs=50)
    assert size == pytest.approx(0.5, rel=0.1)
