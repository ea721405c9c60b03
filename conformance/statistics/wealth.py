"""Wealth: what J bets carried side by side have won, and the evidence that it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from conformance.statistics.evidence import Evidence, Floats, WrongUse, false_alarm_rate, log_mean_exp


@dataclass
class BetMixture:
    """The wealth of J bets carried side by side; the evidence is their weighted mean, taken **after** all products.

    `log_wealth [J]` and `n` add over shards; e-values never do. `weights [J]` sum to 1 and are fixed before the data.

    >>> bets = BetMixture.equal(["small", "large"])
    >>> bets.add(np.log([[1.1, 1.9], [1.1, 0.1]]))
    >>> round(float(np.exp(bets.log_e)), 6)                      # (1.21 + .19) / 2
    0.7
    """

    names: tuple[str, ...]
    weights: Floats
    log_wealth: Floats
    n: int = 0

    @classmethod
    def equal(cls, names: Sequence[str]) -> BetMixture:
        """Bets of equal weight, before any data."""
        return cls(tuple(names), np.full(len(names), 1 / len(names)), np.zeros(len(names)))

    def add(self, log_factors: Floats) -> None:
        """Multiply each bet's wealth by its factors `log_factors [n, J]`, in the order of submission."""
        if log_factors.ndim != 2 or log_factors.shape[1] != len(self.names):
            raise WrongUse(f"log factors must be [n, {len(self.names)}], got {log_factors.shape}")
        self.log_wealth = self.log_wealth + log_factors.sum(axis=0)
        self.n += len(log_factors)

    def merge(self, other: BetMixture) -> None:
        """Take in the evidence of another shard of the same plan."""
        if self.names != other.names or not np.array_equal(self.weights, other.weights):
            raise WrongUse("only evidence of the same bets with the same weights merges")
        self.log_wealth = self.log_wealth + other.log_wealth
        self.n += other.n

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value: an alarm of error rate alpha is log_e >= log(1/alpha), at any look."""
        return log_mean_exp(self.log_wealth, self.weights)

    @property
    def strongest(self) -> str:
        """The name of the bet that holds most of the wealth: it says what kind of fault was seen."""
        return self.names[int(np.argmax(self.log_wealth + np.log(self.weights)))]

    def evidence(self, check: str, unit: str = "tokens") -> Evidence:
        """What the ledger takes in."""
        return Evidence(check=check, n=self.n, log_e=self.log_e, holder=self.strongest, unit=unit)

    def path(self, log_factors: Floats) -> Floats:
        """log_e after each of n further factors `[n, J]` without adding them: `[n]`."""
        walk = self.log_wealth + np.cumsum(log_factors, axis=0)
        return np.asarray(logsumexp(walk, b=self.weights, axis=1))


def log_threshold(false_fail_rate: float) -> float:
    """log(1/alpha): evidence of this much fails a correct engine with probability at most alpha, at any look.

    >>> round(log_threshold(1e-6), 3)
    13.816
    """
    return float(-np.log(false_alarm_rate(false_fail_rate)))
