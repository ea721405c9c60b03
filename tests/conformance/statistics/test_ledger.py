"""The ledger: weights, verdicts, merging, carrying, and every wrong use it refuses."""

from __future__ import annotations

import json
import math
from itertools import chain, combinations

import numpy as np
import pytest
from statistics_laws import draw, random_laws

from conformance.statistics import Evidence, Ledger, ModeJudge, ModePlan, Plan, TokenBlock, WrongUse, standard_weights
from conformance.statistics.ledger import e_holm

MODE = "sampling"


def plan(n: int = 400, **settings) -> Plan:
    settings = {"segments": False, "slots": False, "batch": False, "k": 2, **settings}
    return Plan((ModePlan.standard(MODE, n, **settings),), alpha=1e-3)


def block(first: int, requests: int, seed: int, leak: float = 0.0, length: int = 20) -> TokenBlock:
    p, q = random_laws(requests * length, 6, seed)
    rng = np.random.default_rng(seed)
    laws = np.where(rng.random((len(p), 1)) < leak, q, p)
    request = np.repeat(np.arange(first, first + requests), length)
    return TokenBlock(draw(laws, rng), p, q, request=request)


def test_weights_follow_section_six_and_sum_to_one():
    weights = standard_weights({"bank", "omnibus", "lag", "likelihood", "shard", "chi-square", "ks"})
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["omnibus"] == pytest.approx(0.15)
    assert weights["lag"] == weights["likelihood"] == pytest.approx(0.15 / 13)
    assert weights["chi-square"] == pytest.approx(0.015)
    assert weights["bank"] == max(weights.values())


def test_run_evidence_is_the_weighted_mean():
    modes = tuple(ModePlan.standard(name, 100, weight=0.5, batch=False, slots=False, segments=False) for name in "ab")
    ledger = Ledger(Plan(modes), "run", 1)
    ledger.observe("a", block(0, 4, 1))
    verdict = ledger.look()
    expected = 0.0
    for mode in modes:
        found = {e.check: math.exp(e.log_e) for e in ledger.evidence(mode.name)}
        expected += mode.weight * sum(w * found[c] for c, w in mode.checks.items())
    assert verdict.log10_e == pytest.approx(math.log10(expected))


def test_fixed_n_checks_count_zero_before_their_n():
    ledger = Ledger(plan(400), "run", 1)
    ledger.observe(MODE, block(0, 19, 1))
    before = {e.check: e.log_e for e in ledger.evidence(MODE)}
    assert before["chi-square"] == before["ks"] == -math.inf
    assert not ledger.look().complete
    ledger.observe(MODE, block(19, 5, 2))
    at = {e.check: (e.log_e, e.n) for e in ledger.evidence(MODE)}
    assert at["chi-square"][1] == at["ks"][1] == 400
    assert at["ks"][0] > -math.inf
    ledger.observe(MODE, block(24, 30, 3, leak=1.0))
    after = {e.check: (e.log_e, e.n) for e in ledger.evidence(MODE)}
    assert after["chi-square"] == at["chi-square"]  # read once, for good
    assert after["ks"] == at["ks"]
    assert ledger.look().complete


def test_a_failure_is_final_and_named():
    ledger = Ledger(plan(), "run", 1)
    ledger.observe(MODE, block(0, 400, 1, leak=0.1))
    verdict = ledger.look()
    assert verdict.failed
    assert verdict.named[0].check == "bank"
    assert "leak" in verdict.named[0].holder
    for start in range(400, 1000, 100):
        ledger.observe(MODE, block(start, 100, start))
    assert ledger.look().failed


def test_an_impossible_token_convicts_only_where_p_is_exact():
    for exact in (True, False):
        ledger = Ledger(plan(exact_p=exact), "run", 1)
        p = np.tile([0.5, 0.5, 0.0], (10, 1))
        tokens = np.array([0, 1] * 4 + [2, 0])
        ledger.observe(MODE, TokenBlock(tokens, p, np.full((10, 3), 1 / 3)))
        assert ledger.look().failed is exact


def test_state_survives_json_and_resumes():
    one, two = Ledger(plan(), "run", 5), Ledger(plan(), "run", 5)
    for ledger in (one, two):
        ledger.observe(MODE, block(0, 10, 1))
    two = Ledger.from_state(json.loads(json.dumps(two.state())))
    for ledger in (one, two):
        ledger.observe(MODE, block(10, 15, 2))
    assert two.look().log10_e == pytest.approx(one.look().log10_e, abs=1e-9)
    assert two.look().looks == 2


def test_merging_shards_adds_counts_and_log_wealth():
    whole, first, second = (Ledger(plan(400), "run", seed) for seed in (5, 6, 7))
    blocks = block(0, 20, 1), block(20, 20, 2)
    for b in blocks:
        whole.observe(MODE, b)
    first.observe(MODE, blocks[0])
    second.observe(MODE, blocks[1])
    first.merge(second)
    mine, theirs = ({e.check: e for e in ledger.evidence(MODE)} for ledger in (whole, first))
    assert theirs["bank"].log_e == pytest.approx(mine["bank"].log_e)
    assert theirs["likelihood"].log_e == pytest.approx(mine["likelihood"].log_e)
    assert theirs["lag"].n == mine["lag"].n
    assert theirs["omnibus"].n == mine["omnibus"].n
    assert theirs["ks"].n == 400
    with pytest.raises(WrongUse, match="order of submission"):
        second.merge(first)


def test_registered_n_inside_a_later_shard_counts_zero():
    first, second = Ledger(plan(500), "run", 1), Ledger(plan(500), "run", 2)
    first.observe(MODE, block(0, 20, 1))
    second.observe(MODE, block(20, 20, 2))
    first.merge(second)
    assert {e.check: e.log_e for e in first.evidence(MODE)}["ks"] == -math.inf


def test_runs_multiply_and_samples_never_do():
    first, second = Ledger(plan(), "monday", 1), Ledger(plan(), "tuesday", 2)
    first.observe(MODE, block(0, 20, 1, leak=0.2))
    second.observe(MODE, block(0, 20, 2, leak=0.2))
    logs = first.look().log10_e, second.look().log10_e
    second.carry(first)
    assert second.look().log10_e == pytest.approx(sum(logs))
    with pytest.raises(WrongUse, match="same samples"):
        second.carry(first)
    with pytest.raises(WrongUse, match="same samples"):
        first.carry(first)


def test_carrying_a_failure_keeps_it():
    first, second = Ledger(plan(), "monday", 1), Ledger(plan(), "tuesday", 2)
    first.observe(MODE, block(0, 100, 1, leak=0.5))
    assert first.look().failed
    for start in range(0, 2000, 200):
        second.observe(MODE, block(start, 200, start))
    second.carry(first)
    assert second.look().failed


def test_outside_evidence_needs_a_weight_in_the_plan():
    ledger = Ledger(plan(outside=("greedy",)), "run", 1)
    ledger.put(MODE, Evidence("greedy", 100, math.log(1e8)))
    assert ledger.look().failed
    with pytest.raises(WrongUse, match="no weight"):
        ledger.put(MODE, Evidence("acceptance", 100, 0.0))
    with pytest.raises(WrongUse, match="no weight"):
        ledger.put(MODE, Evidence("bank", 100, 0.0))
    with pytest.raises(WrongUse, match="went back"):
        ledger.put(MODE, Evidence("greedy", 99, 0.0))


def test_planned_checks_that_are_silent_count_zero():
    ledger = Ledger(plan(outside=("greedy",)), "run", 1)
    ledger.observe(MODE, block(0, 4, 1))
    silent = ledger.look().log10_e
    ledger.put(MODE, Evidence("greedy", 1, 0.0))
    assert ledger.look().log10_e > silent


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Plan((ModePlan.standard("a", 10),), alpha=0.0), "alpha"),
        (lambda: Plan((ModePlan.standard("a", 10),), alpha=1.0), "alpha"),
        (lambda: Plan((ModePlan.standard("a", 10, weight=0.5),)), "sum to 1"),
        (lambda: ModePlan("a", 1.0, {"bank": 0.5, "omnibus": 0.4}, 10), "sum to 1"),
        (lambda: ModePlan("a", 1.0, {"bank": 1.0}, 0), "at least one"),
        (lambda: ModePlan("a", 1.0, {"bank": 1.0}, 10, has_q=False, ratio_rule=True), "without q"),
        (lambda: standard_weights({"omnibus"}), "bank"),
        (lambda: standard_weights({"bank", "horoscope"}), "unknown"),
        (lambda: Evidence("x", 1, math.nan), "NaN"),
        (lambda: Evidence("x", -1, 0.0), "negative"),
        (lambda: Evidence("x", 1, 0.0, p=1.5), "p-value"),
        (lambda: Plan((ModePlan.standard("a", 10),))["b"], "no mode"),
    ],
)
def test_wrong_plans_and_evidence_are_refused(wrong, message):
    with pytest.raises(WrongUse, match=message):
        wrong()


def test_a_plan_changed_after_the_data_is_refused():
    ledger = Ledger(plan(outside=("greedy",)), "run", 1)
    ledger.observe(MODE, block(0, 4, 1))
    ledger.plan.modes[0].checks["bank"] += 0.1
    with pytest.raises(WrongUse, match="sealed"):
        ledger.look()
    state = Ledger(plan(), "run", 1).state()
    state["plan"]["alpha"] = 0.5
    with pytest.raises(WrongUse, match="sealed"):
        Ledger.from_state(state)


def test_ledgers_of_different_plans_or_runs_do_not_merge():
    with pytest.raises(WrongUse, match="different plans"):
        Ledger(plan(400), "run", 1).merge(Ledger(plan(401), "run", 2))
    with pytest.raises(WrongUse, match="one run"):
        Ledger(plan(), "run", 1).merge(Ledger(plan(), "other", 2))
    with pytest.raises(WrongUse, match="seed"):
        ModeJudge(plan().modes[0], 1).merge(ModeJudge(plan().modes[0], 1))


def test_evidence_out_of_the_order_of_submission_is_refused():
    ledger = Ledger(plan(), "run", 1)
    ledger.observe(MODE, block(0, 5, 1))
    with pytest.raises(WrongUse, match="order of submission"):
        ledger.observe(MODE, block(6, 5, 2))  # request 5 was left out
    with pytest.raises(WrongUse, match="order of submission"):
        ledger.observe(MODE, block(3, 5, 2))  # again, or late
    ledger.observe(MODE, block(5, 5, 2))
    p, q = random_laws(3, 6, 1)
    with pytest.raises(WrongUse, match="completion"):
        TokenBlock(np.zeros(3, int), p, q, request=np.array([4, 2, 3]))
    with pytest.raises(WrongUse, match="missing"):
        TokenBlock(np.zeros(3, int), p, q, request=np.array([1, 1, 3]))
    with pytest.raises(WrongUse, match="rise by one"):
        TokenBlock(np.zeros(3, int), p, q, position=np.array([0, 1, 3]))
    TokenBlock(np.zeros(3, int), p, q, request=np.array([1, 1, 3]), silent=(2,))


def test_a_request_goes_on_in_the_next_block():
    p, q = random_laws(20, 6, 1)
    tokens = draw(p, np.random.default_rng(0))
    judge, whole = ModeJudge(plan().modes[0], 1), ModeJudge(plan().modes[0], 1)
    whole.observe(TokenBlock(tokens, p, q))
    for part in (slice(0, 7), slice(7, 20)):
        judge.observe(TokenBlock(tokens[part], p[part], q[part], position=np.arange(20)[part]))
    found, expected = ({e.check: e for e in j.evidence()} for j in (judge, whole))
    assert found["bank"].log_e == pytest.approx(expected["bank"].log_e)
    assert found["lag"].n == expected["lag"].n


def test_e_holm_is_the_closed_test_with_the_mean():
    """Against brute force over all sets of hypotheses."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        logs = {name: float(rng.normal(2, 3)) for name in "abcd"}
        others = {name: [o for o in logs if o != name] for name in logs}
        expected = set()
        for name in logs:
            sets = chain.from_iterable(combinations(others[name], r) for r in range(4))
            means = [np.mean([math.exp(logs[x]) for x in (name, *s)]) for s in sets]
            if min(means) >= 10:
                expected.add(name)
        assert set(e_holm(logs, 0.1)) == expected
