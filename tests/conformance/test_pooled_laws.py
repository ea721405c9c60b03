"""What all cases show together: LAW-2, for which one case has too few tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.cases import Case, Setting
from conformance.law_audit import POOLED, pool, sealed_ledgers
from conformance.statistics import Ledger, TokenBlock
from tests.conformance.promising_engine import settings, subject
from tests.conformance.test_audit_cases import ALL, RATIO


def sticky_cases(chance_of_a_copy: float, *, tokens: int = 400, seed: int = 5) -> Ledger:
    """The ledger of twelve cases of tokens of one fixed law, each a copy of the one before it with that chance."""
    few = [replace(RATIO, name=f"ratio {number}") for number in range(12)]
    cases = [Case(mode, Setting("plain"), tokens=tokens, weight=1 / len(few)) for mode in few]
    ledger = sealed_ledgers(cases, "tables", settings(ALL, seed=seed), [subject()])["speculation"]
    law, rng = np.arange(16, 32) / np.arange(16, 32).sum(), np.random.default_rng(seed)
    rows = np.tile(law, (tokens, 1))
    for case in cases:
        drawn = rng.choice(16, size=tokens, p=law)
        for at in 1 + np.flatnonzero(rng.random(tokens - 1) < chance_of_a_copy):
            drawn[at] = drawn[at - 1]
        ledger.observe(case.name, TokenBlock(drawn, rows, rows[:, ::-1], request=np.arange(tokens) // 16))
    pool(ledger, cases)
    return ledger


def test_what_tokens_say_about_each_other_is_seen_in_all_cases_together_where_none_shows_it_alone() -> None:
    ledger = sticky_cases(0.15)
    look = ledger.look()
    assert [(one.mode, one.check) for one in look.named] == [(POOLED, "lag")]
    for plan in ledger.plan.modes:
        assert (look.modes[plan.name] + np.log10(plan.weight) >= -np.log10(ledger.plan.alpha)) == (plan.name == POOLED)


def test_the_pooled_evidence_against_a_correct_engine_is_a_fair_bet() -> None:
    found = [sticky_cases(0.0, tokens=20, seed=seed).judges[POOLED].checks["lag"].evidence().log_e for seed in range(150)]
    bets = np.exp(found)
    assert bets.mean() < 1 + 4 * bets.std() / np.sqrt(len(bets))
    assert bets.max() < 1e6
