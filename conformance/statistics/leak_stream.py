"""How large can the leak still be, over a stream in which every token has laws of its own?

In one fixed context `bounds.leak_upper_bound` says it from counts. Over many contexts the leak may differ from one to the
next, and what can be bounded is its mean, each context weighing as much as its draft differs from its target. A context
that leans away from the draft counts against one that leans toward it: keep one account per stratum (entropy, kind of
token, position in the round, batch row), so that opposite errors cannot cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.statistics.bounds import capped_ratio
from conformance.statistics.evidence import WrongUse


@dataclass
class LeakOverContexts:
    """Sums over a stream from which an upper bound on the mean leak follows; they add over shards.

    `stake` in (0, 1) is fixed before the data (`planned_stake`), `cap` bounds the payoff g = min(q/p, cap). With
    y = (g(x) - E_p g) / cap and d = (E_q g - E_p g) / cap, the mean leak sum(e d) / sum(d) is at most

        [sum y + (psi sum y^2 + ln(1/error)) / stake] / sum d,     psi = -ln(1 - stake) - stake,

    at all n at once: exp(stake (mean - y) - psi y^2) has mean at most 1, since y <= 1 (Howard et al. 1810.08240, the
    empirical-Bernstein case).
    """

    stake: float
    cap: float = 8.0
    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    slopes: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.stake < 1 or self.cap < 1:
            raise WrongUse(f"a stake lies in (0, 1) and a cap is at least 1, got {self.stake}, {self.cap}")

    def add(self, tokens: npt.ArrayLike, p: npt.ArrayLike, q: npt.ArrayLike) -> None:
        """Take in tokens `[n]` with their laws p, q `[n, V]`."""
        x, laws, drafts = np.asarray(tokens), np.asarray(p, float), np.asarray(q, float)
        if laws.ndim != 2 or laws.shape != drafts.shape or x.shape != laws.shape[:1]:
            raise WrongUse(f"tokens [n] and laws [n, V] are needed, got {x.shape}, {laws.shape}, {drafts.shape}")
        payoff = capped_ratio(laws, drafts, self.cap) / self.cap
        base = (laws * payoff).sum(axis=1)
        y = payoff[np.arange(len(x)), x] - base
        self.n += len(x)
        self.total += float(y.sum())
        self.squares += float((y**2).sum())
        self.slopes += float(((drafts * payoff).sum(axis=1) - base).sum())

    def merge(self, other: LeakOverContexts) -> None:
        """Take in another shard of the same plan."""
        if (self.stake, self.cap) != (other.stake, other.cap):
            raise WrongUse("only accounts of the same stake and cap merge")
        self.n, self.total = self.n + other.n, self.total + other.total
        self.squares, self.slopes = self.squares + other.squares, self.slopes + other.slopes

    def upper_bound(self, error: float) -> float:
        """The bound on the mean leak at confidence 1 - `error`, between 0 and 1."""
        if self.slopes <= 0:
            return 1.0
        psi = -np.log1p(-self.stake) - self.stake
        found = (self.total + (psi * self.squares + np.log(1 / error)) / self.stake) / self.slopes
        return float(np.clip(found, 0, 1))


def planned_stake(p: npt.ArrayLike, q: npt.ArrayLike, planned: int, error: float, cap: float = 8.0) -> float:
    """The stake that serves `planned` tokens of a correct engine best, from a sample of contexts p, q `[n, V]`."""
    laws = np.asarray(p, float)
    payoff = capped_ratio(laws, np.asarray(q, float), cap) / cap
    variance = float(((laws * payoff**2).sum(axis=1) - (laws * payoff).sum(axis=1) ** 2).mean())
    return float(np.clip(np.sqrt(2 * np.log(1 / error) / (planned * max(variance, 1e-12))), 1e-9, 0.5))
