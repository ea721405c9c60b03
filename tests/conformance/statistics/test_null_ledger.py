"""The ledger's own error rate: correct engines, watched at every look."""

from __future__ import annotations

import secrets

import numpy as np
from scipy.stats import binomtest

from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock

RUNS, ALPHA, V, LOOKS, TOKENS = 1_000, 0.05, 16, 5, 60


def test_a_thousand_correct_engines_alarm_no_more_often_than_stated() -> None:
    """At a nominal 5%, on fresh seeds: the 99.9% lower confidence bound of the alarm rate is not above 5%."""
    rng = np.random.default_rng(secrets.randbits(64))
    weights = rng.dirichlet(np.full(V, 0.5), size=(2, 40))  # 40 contexts, mild and sharp laws of target and draft
    p_rows, q_rows = 0.98 * weights + 0.02 / V
    mode = ModePlan.standard("sampled", LOOKS * TOKENS, segments=False, slots=False, batch=False, requests_per_shard=8)
    alarms = 0
    for run in range(RUNS):
        ledger = Ledger(Plan((mode,), alpha=ALPHA), run=f"null {run}", seed=run)
        for look in range(LOOKS):
            contexts = rng.integers(len(p_rows), size=TOKENS)
            p, q = p_rows[contexts], q_rows[contexts]
            tokens = np.minimum((p.cumsum(axis=1) < rng.random((TOKENS, 1))).sum(axis=1), V - 1)
            requests = 12 * look + np.repeat(np.arange(12), TOKENS // 12)
            ledger.observe("sampled", TokenBlock(tokens, p, q, request=requests))
            if ledger.look().failed:
                alarms += 1
                break
    assert binomtest(alarms, RUNS).proportion_ci(0.998, method="exact").low <= ALPHA
