"""From p-values to e-values."""

from __future__ import annotations

import math

from conformance.statistics.evidence import WrongUse


def log_calibrated(p: float) -> float:
    """``ln((1 - p + p ln p) / (p ln^2 p))``: an e-value from a p-value (Vovk and Wang 2021, eq. 2).

    It is the mixture over k of k p^(k-1), has mean exactly 1 for a uniform p, and is about 1 / (p ln^2 p) for small p.

    >>> round(math.exp(log_calibrated(1e-4)), 1)
    117.8
    """
    if not 0 <= p <= 1:
        raise WrongUse(f"p = {p} is not a p-value")
    if p == 0:
        return math.inf
    if p > 1 - 1e-4:
        return math.log(0.5 + (1 - p) / 6)  # the limit 1/2 at p = 1 and its slope; the formula is 0/0 there
    log_p = math.log(p)
    return math.log((1 - p + p * log_p) / log_p**2) - log_p
