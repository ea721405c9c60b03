"""Is every "smallest detectable" that planning prints really caught with the stated probability?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats
from conformance.statistics.planning import BetTable, Threshold, blend, leak, temperature
from conformance.studies.instances import faults, instance

MISS = 1e-3


@dataclass(frozen=True)
class Confirmed:
    """A promise and what simulation found."""

    instance: str
    ray: str
    n: int
    size: float
    missed: int
    runs: int

    @property
    def holds(self) -> bool:
        """False if so many misses have probability below 1e-6 at the promised rate."""
        return self.missed == 0 or float(binom.sf(self.missed - 1, self.runs, MISS)) > 1e-6


def confirm(V: int, hostile: bool, n: int, runs: int, rng: np.random.Generator) -> Iterator[Confirmed]:
    """Every ray on one instance: the smallest detectable size at ``n``, drawn ``runs`` times."""
    given = instance(V, hostile=hostile)
    p, q = given.p[None], given.q[None]
    table = BetTable(FaultBank(), p, q)
    threshold = Threshold(1e-6, 0.6)
    known = {fault.name: fault.r[None] for fault in faults(given)}
    rays = {
        "leak": leak(p, q),
        "temperature": temperature(p),
        "part of the same coin": blend(p, known["same coin"]),
        "part of resampling from p": blend(p, known["resample from p"]),
        "part of the whole q, drafted from its head": blend(p, known["whole q, drafted from its head"]),
    }
    log_bets = np.array([table.log_bet(j)[0] for j in range(len(table.bank))])
    for name, ray in rays.items():
        size = table.smallest_detectable(ray, n, threshold, MISS)
        if size is not None:
            missed = _missed(ray(size)[0], n, runs, log_bets, table.bank.log_prior, threshold, rng)
            yield Confirmed(given.name, name, n, size, missed, runs)


def _missed(
    law: Floats, n: int, runs: int, log_bets: Floats, log_prior: Floats, threshold: Threshold, rng: np.random.Generator
) -> int:
    missed, step = 0, max(1, int(2e6) // len(law))
    for start in range(0, runs, step):
        counts = rng.multinomial(n, law / law.sum(), size=min(step, runs - start))
        wealth = logsumexp(counts @ log_bets.T + log_prior, axis=1)
        missed += int((wealth < threshold.log_e).sum())
    return missed
