"""Requests to detect the joint faults of `joint`: each check of the ledger, the ledger, and fixed-n tests beside them."""

from __future__ import annotations

import numpy as np
from scipy import stats

from conformance.statistics.chi_square import chi_square_next_given_previous
from conformance.statistics.fixed_n import ChiSquareCheck
from conformance.statistics.ledger import Ledger
from conformance.statistics.plan import ModePlan, Plan
from conformance.studies.joint import BATCH, FAULTS, LENGTH, TARGET, K, Run, V, simulate

ALPHA = 1e-6
BEST_BEFORE: dict[str, int] = dict(zip(FAULTS, (5793, 91, 45, 362, 362, 181, 91, 362, 32, 128, 32)))
"""Best figure of any single test on these instances before this judge was written (medians of requests)."""
BEST_BEFORE["noise reused every round"] = 181

GRID = np.unique(np.round(2.0 ** np.arange(3, 17.01, 0.25) / BATCH) * BATCH).astype(int)


def plan() -> Plan:
    """One mode, k = 3, everything exposed."""
    mode = ModePlan.standard(
        "simulated", registered_n=400 * LENGTH, k=K, ratio_rule=True, rows=BATCH, requests_per_shard=1 << 12
    )
    return Plan((mode,), ALPHA)


def run_once(fault: str, seed: int, requests: int, until_failure: bool = True) -> tuple[dict[str, float], float]:
    """Requests at which each check first decides; also the largest log10 E that the ledger saw."""
    run = simulate(requests, fault, np.random.default_rng([2, seed]))
    ledger = Ledger(plan(), f"seed {seed}", seed)
    found: dict[str, float] = {}
    before, most = 0, -np.inf
    for n in (n for n in GRID if n <= requests):
        ledger.observe("simulated", run.block(before, n))
        before = int(n)
        verdict = ledger.look()
        most = max(most, verdict.log10_e)
        logs = {e.check: e.log10_e for e in ledger.evidence("simulated")}
        logs["ledger"] = verdict.log10_e
        for check, log10_e in logs.items():
            if log10_e >= -np.log10(ALPHA):
                found.setdefault(check, before)
        for test, log_p in fixed_n_tests(run, before, ledger).items():
            # A fixed-n test has power from the first n on after which it rejects at every larger one.
            if log_p <= np.log(ALPHA):
                found.setdefault(test, before)
            else:
                found.pop(test, None)
        if "ledger" in found and until_failure:
            break  # the ledger is a mean: some check of it has decided by now
    return found, most


def fixed_n_tests(run: Run, n: int, ledger: Ledger) -> dict[str, float]:
    """Log p-values of classical tests on the first ``n`` requests, textbook tails."""
    tokens = run.tokens[:n]
    before = np.concatenate([np.zeros((n, 1), np.int64), tokens[:, :-1]], axis=1)
    pairs = np.bincount((before * V + tokens).ravel(), minlength=V * V).reshape(V, V)
    sums = ledger.judges["simulated"].checks["lag"].sums["pairs"]
    dependence = []
    for table in sums.reshape(-1, *sums.shape[-2:]):
        rows = table.sum(axis=1, keepdims=True)
        expected = np.maximum(rows / table.shape[1], 1e-9)
        statistic = float(((table - expected) ** 2 / expected)[rows[:, 0] > 0].sum())
        dependence.append(stats.chi2.logsf(statistic, table.size - len(table)) if rows.min() >= 40 else 0.0)
    checks = ledger.judges["simulated"].checks["chi-square"]
    assert isinstance(checks, ChiSquareCheck)
    pit = [stats.chi2.logsf(value, checks.cells - 1) for value in checks.statistics()]
    return {
        "chi-square PIT": float(min(pit)) if n * LENGTH <= checks.registered_n else 0.0,
        "chi-square next given previous": chi_square_next_given_previous(pairs, TARGET, 5.0).log_p,
        "chi-square PIT pairs": float(min(dependence)),
    }


def medians(fault: str, runs: int, requests: int) -> dict[str, float]:
    """Median requests of every check over ``runs`` runs; infinite where it seldom decides."""
    results = [run_once(fault, seed, requests)[0] for seed in range(runs)]
    names = {name for found in results for name in found}
    return {name: float(np.median([found.get(name, np.inf) for found in results])) for name in names}
