"""Runs of correct engines: how often does anything alarm, looked at fourteen times?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from conformance.statistics.bank import FaultBank
from conformance.statistics.calibrate import log_calibrated
from conformance.statistics.chi_square import NULL_TABLES, null_statistics, pooled_cells, rank_p_value
from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.fixed_laws import FixedLaws
from conformance.statistics.fixed_n import CELLS
from conformance.statistics.ks import ks_of_bins, ks_p_value
from conformance.statistics.ledger import Ledger
from conformance.statistics.plan import ModePlan, Plan
from conformance.statistics.tree import LEAVES, log_shape
from conformance.studies.instances import instance
from conformance.studies.joint import BATCH, LENGTH, K, simulate

NOMINAL = 1e-2
LOOKS = 14
CONFIDENCE = 0.999
EXACT = 1 - 1e-8
"""Of a p-value whose rate is the nominal one: with 99.9%, one study in 500 would accuse one of three by chance."""


@dataclass(frozen=True)
class Rate:
    """Alarms in null runs, with the exact lower bound of the rate. confidence: with which it is called above nominal.

    >>> [Rate("e", alarms, 1_000, 0.01).holds for alarms in (21, 22)]
    [True, False]
    >>> [Rate("p", alarms, 4_000, 0.01, EXACT).holds for alarms in (80, 81)]
    [True, False]
    """

    what: str
    alarms: int
    runs: int
    nominal: float
    confidence: float = CONFIDENCE

    @property
    def lower(self) -> float:
        """Clopper-Pearson lower bound at 99.9%."""
        return self._lower(CONFIDENCE)

    @property
    def holds(self) -> bool:
        """False if the rate is above nominal with that confidence."""
        return self._lower(self.confidence) <= self.nominal

    def _lower(self, confidence: float) -> float:
        if self.alarms == 0:
            return 0.0
        return float(stats.beta.ppf(1 - confidence, self.alarms, self.runs - self.alarms + 1))


WEIGHTS = {"bank": 0.8, "omnibus": 0.15, "likelihood": 0.02, "chi-square": 0.015, "ks": 0.015}
POOL = 400_000
"""Null statistics of chi-square from which each run draws its own 9,999."""


def from_counts(V: int, runs: int, rng: np.random.Generator, largest: int = 20_000) -> list[Rate]:
    """Alarm rates of every check of a fixed pair of laws, and of their ledger, over ``runs`` null runs.

    Runs are simulated side by side: the same functions as in the ledger, over one more axis.
    """
    given = instance(V)
    fixed = FixedLaws(FaultBank(), given.p, given.q)
    looks = np.geomspace(50, largest, LOOKS).astype(int)
    pool = null_statistics(np.full(CELLS, 1 / CELLS), int(looks[-4]), POOL if runs > 1_000 else 40_000, rng)
    alarms = dict.fromkeys(("ledger", *WEIGHTS), 0)
    step = min(500, max(1, 2_000_000 // V))
    for start in range(0, runs, step):
        highest = _highest(fixed, min(step, runs - start), looks, pool, rng)
        for name, log_e in highest.items():
            alarms[name] += int((log_e >= -np.log(NOMINAL)).sum())
    return [Rate(name, count, runs, NOMINAL) for name, count in alarms.items()]


def _highest(fixed: FixedLaws, runs: int, looks: Ints, pool: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """The largest log e-value of each check and of their weighted mean over all looks, ``[runs]`` each."""
    bank = fixed.bank
    tilts = bank.family("temperature")
    counts = np.zeros((runs, len(fixed.p)), np.int64)
    leaves = np.zeros((len(fixed.leaves), runs, LEAVES), np.int64)
    once = {"chi-square": np.full(runs, -np.inf), "ks": np.full(runs, -np.inf)}
    highest = {name: np.full(runs, -np.inf) for name in ("ledger", *WEIGHTS)}
    before = 0
    for look, n in enumerate(looks):
        drawn = rng.multinomial(n - before, fixed.p, size=runs)
        counts, before = counts + drawn, int(n)
        leaves += np.stack([spread(drawn, rng) for spread in fixed.leaves])
        wealth = counts @ fixed.log_table.T
        if look == len(looks) - 4:
            once = _fixed_n(np.stack([spread(counts, rng) for spread in fixed.fine_bins]), n, pool, rng)
        log_e = {
            "bank": logsumexp(wealth + bank.log_prior, axis=1),
            "omnibus": logsumexp(log_shape(leaves), axis=0) - np.log(len(leaves)),
            "likelihood": logsumexp(wealth[:, tilts], axis=1) - np.log(len(tilts)),
            **once,
        }
        terms = np.array([np.log(WEIGHTS[name]) + value for name, value in log_e.items()])
        log_e["ledger"] = logsumexp(terms, axis=0)
        for name, value in log_e.items():
            highest[name] = np.maximum(highest[name], value)
    return highest


def _fixed_n(bins: Ints, n: int, pool: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """Log e-values of chi-square and KS, ``[runs]``, from PIT counts ``[orders, runs, FINE_BINS]`` at the registered n."""
    cells = bins.reshape(*bins.shape[:2], CELLS, -1).sum(axis=3)
    statistics = ((cells - n / CELLS) ** 2 / (n / CELLS)).sum(axis=2)
    chi_square, ks = np.empty(statistics.shape), np.empty(statistics.shape)
    for run in range(bins.shape[1]):
        null = pool[rng.integers(0, len(pool), NULL_TABLES)]
        for order in range(len(bins)):
            chi_square[order, run] = log_calibrated(rank_p_value(float(statistics[order, run]), null, rng))
            ks[order, run] = log_calibrated(ks_p_value(ks_of_bins(bins[order, run]), n))
    orders = np.log(len(bins))
    return {"chi-square": logsumexp(chi_square, axis=0) - orders, "ks": logsumexp(ks, axis=0) - orders}


def from_streams(runs: int, rng: np.random.Generator, requests: int = 160) -> list[Rate]:
    """Alarm rates of every check of a stream, and of the ledger: the correct engine of `joint`."""
    looks = np.unique(np.geomspace(BATCH, requests, LOOKS) // BATCH * BATCH).astype(int)
    mode = ModePlan.standard("null", requests * LENGTH // 2, k=K, ratio_rule=True, rows=BATCH, requests_per_shard=40)
    plan = Plan((mode,), NOMINAL)
    alarms = dict.fromkeys(("ledger", *mode.checks), 0)
    for run in range(runs):
        output = simulate(requests, "", rng)
        ledger = Ledger(plan, f"run {run}", int(rng.integers(2**40)))
        seen: set[str] = set()
        before = 0
        for n in looks:
            ledger.observe("null", output.block(before, n))
            before = int(n)
            seen |= _alarms(ledger)
        for name in seen:
            alarms[name] += 1
    return [Rate(name, count, runs, NOMINAL) for name, count in alarms.items()]


def _alarms(ledger: Ledger) -> set[str]:
    evidence = {e.check: e.log_e for e in ledger.evidence("null")}
    evidence["ledger"] = ledger.look().log10_e * np.log(10)
    return {name for name, log_e in evidence.items() if log_e >= -np.log(NOMINAL)}


def rank_p_values(runs: int, rng: np.random.Generator) -> list[Rate]:
    """The rank p-value at 1e-2 with B = 199 fresh null tables per run, on cells that break the textbook."""
    laws = {
        "small cells (40 of expected .1)": (np.concatenate([np.full(40, 0.0005), [0.98]]), 200),
        "peaked": (np.array([0.9, 0.05, 0.02, 0.019, 0.006, 0.004, 0.001]), 500),
        "64 equal cells": (np.full(64, 1 / 64), 20_000),
    }
    rates = []
    for name, (law, n) in laws.items():
        hits = 0
        for _ in range(runs):
            drawn = rng.multinomial(n, law)
            statistic = float(((drawn - n * law) ** 2 / (n * law)).sum())
            hits += rank_p_value(statistic, null_statistics(law, n, 199, rng), rng) <= NOMINAL
        rates.append(Rate(name, hits, runs, NOMINAL, EXACT))
    return rates


def textbook(draws: int, rng: np.random.Generator) -> list[list[object]]:
    """Real rate over nominal of the textbook chi-square and of KS by DKWM, at 1e-2, 1e-3 and 1e-4."""
    rows: list[list[object]] = []
    nominal = np.array([1e-2, 1e-3, 1e-4])
    for V, profile, n, least in (
        (16, "llm", 200, 1), (16, "llm", 200, 5), (16, "peak", 2_000, 5), (16, "llm", 2_000, 20),
        (16, "llm", 20_000, 50), (256, "llm", 2_000, 5), (256, "llm", 20_000, 50),
    ):  # fmt: skip
        given = instance(V, profile)
        size = draws if V == 16 else draws // 8
        hits = {"chi-square": np.zeros(3), "KS": np.zeros(3)}
        cells = pooled_cells(n * given.p, least)
        member = (cells[:, None] == np.arange(cells.max() + 1)).astype(float)
        expected = n * (given.p @ member)
        for start in range(0, size, 50_000):
            counts = rng.multinomial(n, given.p, size=min(50_000, size - start))
            statistic = (((counts @ member) - expected) ** 2 / expected).sum(axis=1)
            p_value = stats.chi2.sf(statistic, len(expected) - 1)
            distance = np.abs(np.cumsum(counts / n - given.p, axis=1)).max(axis=1)
            bound = np.minimum(1, 2 * np.exp(-2 * n * distance**2))
            hits["chi-square"] += (p_value[:, None] <= nominal).sum(axis=0)
            hits["KS"] += (bound[:, None] <= nominal).sum(axis=0)
        for test, count in hits.items():
            name = f"{test}, V={V} {profile}, n={n}" + (f", expected >= {least}" if test == "chi-square" else "")
            rows.append([name, f"{size:.1e}", *[float(x) for x in count / size / nominal]])
    return rows
