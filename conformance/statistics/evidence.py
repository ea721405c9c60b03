"""What every check hands to the ledger, and the error that wrong use raises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class WrongUse(ValueError):
    """Evidence was asked for, added or merged in a way that would make the stated error rate false."""


@dataclass(frozen=True)
class Evidence:
    """One check's evidence against a correct engine, after ``n`` tokens (or rounds, or prompts: ``unit``).

    ``log_e`` is the natural logarithm of an e-value: under a correct engine E has mean at most 1. A check that is
    valid at one registered n only has ``log_e = -inf`` (E = 0) before it. ``p``, ``statistic`` and ``degrees`` are for
    the reader; they never enter the ledger. ``holder`` names the alternative that holds most of the wealth, ``others`` those
    that the same tokens support nearly as well.
    """

    check: str
    n: int
    log_e: float
    p: float | None = None
    statistic: float | None = None
    degrees: int | None = None
    holder: str = ""
    others: tuple[str, ...] = ()
    unit: str = "tokens"
    detail: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if math.isnan(self.log_e):
            raise WrongUse(f"evidence of {self.check!r} is NaN; a check must return a number, -inf or +inf")
        if self.n < 0:
            raise WrongUse(f"evidence of {self.check!r} rests on n = {self.n} samples; n cannot be negative")
        if self.p is not None and not 0 <= self.p <= 1:
            raise WrongUse(f"evidence of {self.check!r} has p = {self.p}; a p-value lies in [0, 1]")

    @property
    def log10_e(self) -> float:
        """log10 of the e-value, as reports print it."""
        return self.log_e / math.log(10)


def log_mean_exp(log_values: Floats, weights: Floats | None = None) -> float:
    """``log(sum_i w_i exp(v_i))``, weights equal unless given; -inf and +inf are kept.

    >>> round(log_mean_exp(np.log(np.array([1.0, 3.0]))), 12) == round(math.log(2), 12)
    True
    """
    values = np.asarray(log_values, dtype=np.float64).ravel()
    if weights is None:
        weights = np.full(len(values), 1 / len(values))
    top = float(values.max())
    if math.isinf(top):
        return top
    return top + math.log(float(np.dot(weights, np.exp(values - top))))


def false_alarm_rate(alpha: float) -> float:
    """Return ``alpha`` if it is one, else raise.

    >>> false_alarm_rate(1e-6)
    1e-06
    """
    if not 0 < alpha < 1:
        raise WrongUse(f"alpha = {alpha}: a false-alarm rate lies strictly between 0 and 1 (1e-6 is the default)")
    return alpha


def law_rows(name: str, laws: Floats, rows: int | None = None) -> Floats:
    """Return ``laws`` as float64 ``[n, V]`` after checking that every row is a law (sums to 1 within 1e-9)."""
    table = np.asarray(laws)
    if table.dtype == object:
        raise WrongUse(f"{name} holds {type(table.flat[0]).__name__} objects; convert exact laws to float64 first")
    table = np.ascontiguousarray(table, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise WrongUse(f"{name} has shape {table.shape}; laws are [n, V] with V of at least 2")
    if rows is not None and table.shape[0] != rows:
        raise WrongUse(f"{name} has {table.shape[0]} rows for {rows} tokens; give one law per token")
    if table.size:
        sums = table @ np.ones(table.shape[1])
        worst = int(np.argmax(np.abs(np.where(np.isfinite(sums), sums, np.inf) - 1)))
        if not abs(sums[worst] - 1) <= 1e-9:
            raise WrongUse(f"{name}[{worst}] sums to {sums[worst]!r}, not to 1 within 1e-9; normalise in float64")
        if float(table.min()) < 0:
            raise WrongUse(f"{name} holds a negative probability ({float(table.min())!r})")
    return table
