"""Chi-square and Kolmogorov-Smirnov on the PIT, read once, at the registered number of tokens.

Before the registered n they count 0 in the ledger, not 1: an e-value that is not known yet may be anything. They stop
counting at exactly n tokens in the order of submission, so a later look reads the same value again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from conformance.statistics.calibrate import log_calibrated
from conformance.statistics.check import Check
from conformance.statistics.chi_square import LEAST_EXPECTED, NULL_TABLES, null_statistics, rank_p_value
from conformance.statistics.evidence import Evidence, Floats, Ints, WrongUse, log_mean_exp
from conformance.statistics.ks import ks_of_bins, ks_p_value
from conformance.statistics.pit import ORDERS, READ
from conformance.statistics.scoring import Scored

if TYPE_CHECKING:
    from conformance.statistics.counted import Counted

FINE_BINS = 1024
"""Bins in which PIT values are kept for KS; chi-square adds 32 of them to a cell."""
CELLS = 32


class FixedNCheck(Check):
    """Counts of PIT values in fine bins over the first ``registered_n`` tokens."""

    def __init__(self, name: str, registered_n: int, has_q: bool, seed: int) -> None:
        orders = READ if has_q else 2
        self.name, self.registered_n, self.orders, self.seed = name, registered_n, orders, seed
        # `skipped` turns 1 when shards are merged and the registered n falls inside the later one.
        self.sums = {
            "bins": np.zeros((orders, FINE_BINS), np.int64),
            "seen": np.zeros(1, np.int64),
            "skipped": np.zeros(1, np.int64),
        }

    def observe(self, scored: Scored) -> None:
        """Count the tokens up to the registered n."""
        room = self.registered_n - int(self.sums["seen"][0])
        if room > 0:
            for row, values in zip(self.sums["bins"], scored.pit[:, :room]):
                row += np.bincount((values * FINE_BINS).astype(np.int64), minlength=FINE_BINS)
        self.sums["seen"] += len(scored.block)

    def observe_counts(self, counted: Counted) -> None:
        """Count samples up to the registered n: exchangeable ones, so a random part of them is their beginning."""
        room = self.registered_n - int(self.sums["seen"][0])
        if room >= counted.n:
            self.sums["bins"] += counted.fine_bins[: self.orders]
        elif room > 0:
            rng = np.random.default_rng([self.seed, 3, int(self.sums["seen"][0])])
            self.sums["bins"] += np.stack(
                [rng.multivariate_hypergeometric(row, room) for row in counted.fine_bins[: self.orders]]
            )
        self.sums["seen"] += counted.n

    def merge(self, later: Check) -> None:
        """Add the shard that follows; where the registered n falls inside it, this check counts 0 for good."""
        if not isinstance(later, FixedNCheck):
            raise WrongUse(f"{self.name!r} cannot merge with {later.name!r}")
        before, after = int(self.sums["seen"][0]), int(later.sums["seen"][0])
        if before < self.registered_n < before + after:
            self.sums["skipped"][:] = 1
        if before < self.registered_n:
            self.sums["bins"] = self.sums["bins"] + later.sums["bins"]
        self.sums["seen"] = self.sums["seen"] + later.sums["seen"]
        self.sums["skipped"] = np.maximum(self.sums["skipped"], later.sums["skipped"])

    @property
    def ready(self) -> bool:
        """True once the registered n is reached."""
        return int(self.sums["seen"][0]) >= self.registered_n and not self.sums["skipped"][0]

    def distribution(self, points: int = 128) -> dict[str, list[float]]:
        """The PIT's distribution function on a grid, for each order, for plots."""
        n = max(int(self.sums["bins"][0].sum()), 1)
        coarse = self.sums["bins"].reshape(self.orders, points, -1).sum(axis=2)
        return {name: (np.cumsum(row) / n).tolist() for name, row in zip(ORDERS, coarse)}


class KSCheck(FixedNCheck):
    """Kolmogorov-Smirnov by the DKWM bound, in each order; calibrated, then averaged over orders."""

    def __init__(self, registered_n: int, has_q: bool, seed: int) -> None:
        super().__init__("ks", registered_n, has_q, seed)

    def evidence(self) -> Evidence:
        """0 before the registered n; then the mean of the calibrated p-values."""
        n = int(self.sums["bins"][0].sum())
        distances = np.array([ks_of_bins(row) for row in self.sums["bins"]])
        p_values = [ks_p_value(float(distance), n) for distance in distances]
        log_e = log_mean_exp(np.array([log_calibrated(p) for p in p_values])) if self.ready else -math.inf
        most = int(np.argmax(distances))
        return Evidence(
            self.name,
            n,
            log_e,
            p=min(1.0, self.orders * min(p_values)),
            statistic=float(distances[most]),
            holder=f"order of {ORDERS[most]}",
            detail={"distances": dict(zip(ORDERS, distances.tolist())), "distribution": self.distribution()},
        )


class ChiSquareCheck(FixedNCheck):
    """Chi-square on PIT cells, in each order, by its rank among null tables; calibrated, then averaged over orders."""

    def __init__(self, registered_n: int, has_q: bool, seed: int) -> None:
        super().__init__("chi-square", registered_n, has_q, seed)
        cells = CELLS
        while cells > 2 and registered_n / cells < LEAST_EXPECTED:
            cells //= 2
        self.cells = cells
        self._null: Floats | None = None
        self.sums.update(expected=np.zeros(0), counts=np.zeros(0, np.int64))

    def observe(self, scored: Scored) -> None:
        """Also keep observed and expected counts of each token, for the reader."""
        super().observe(scored)
        self._tally(scored.expected, scored.counts)

    def observe_counts(self, counted: Counted) -> None:
        """Also keep observed and expected counts of each token, for the reader."""
        super().observe_counts(counted)
        self._tally(counted.n * counted.laws.p, counted.counts)

    def load(self, state: dict[str, object]) -> None:  # type: ignore[override]
        """Take over a stored state."""
        self._tally(np.zeros(len(state["expected"])), np.zeros(len(state["counts"]), np.int64))  # type: ignore[arg-type]
        super().load(state)

    def merge(self, later: Check) -> None:
        """Add the shard that follows."""
        super().merge(later)
        self._tally(later.sums["expected"], later.sums["counts"])

    def _tally(self, expected: Floats, counts: Ints) -> None:
        if not len(self.sums["expected"]):
            self.sums["expected"], self.sums["counts"] = np.zeros(len(expected)), np.zeros(len(counts), np.int64)
        if len(expected):
            self.sums["expected"], self.sums["counts"] = self.sums["expected"] + expected, self.sums["counts"] + counts

    def statistics(self) -> Floats:
        """The statistic in each order, on equal cells."""
        table = self.sums["bins"].reshape(self.orders, self.cells, -1).sum(axis=2)
        expected = max(int(table[0].sum()), 1) / self.cells
        result: Floats = ((table - expected) ** 2 / expected).sum(axis=1)
        return result

    def evidence(self) -> Evidence:
        """0 before the registered n; then the mean of the calibrated rank p-values."""
        statistics, n = self.statistics(), int(self.sums["bins"][0].sum())
        most = int(np.argmax(statistics))
        textbook = float(stats.chi2.sf(statistics[most], self.cells - 1))
        log_e, ranks = -math.inf, []
        if self.ready:
            if self._null is None:
                rng = np.random.default_rng([self.seed, 1])
                self._null = null_statistics(np.full(self.cells, 1 / self.cells), self.registered_n, NULL_TABLES, rng)
            rng = np.random.default_rng([self.seed, 2])
            ranks = [rank_p_value(float(value), self._null, rng) for value in statistics]
            log_e = log_mean_exp(np.array([log_calibrated(p) for p in ranks]))
        detail = {
            "statistics": dict(zip(ORDERS, statistics.tolist())),
            "rank_p": dict(zip(ORDERS, ranks)),
            "observed": self.sums["counts"].tolist(),
            "expected": self.sums["expected"].tolist(),
        }
        p = min(1.0, self.orders * textbook)
        holder = f"order of {ORDERS[most]}"
        return Evidence(self.name, n, log_e, p, float(statistics[most]), self.cells - 1, holder, detail=detail)
