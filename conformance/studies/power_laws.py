"""Tokens to detect a fault of the output law, divided by Stein's limit, for our checks and for others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats, Ints, log_mean_exp
from conformance.statistics.pit import bins_of_counts, scores_of_orders
from conformance.statistics.tree import EDGES, log_shape
from conformance.studies import peers
from conformance.studies.instances import Fault, Instance, faults, softmax

ALPHA = 1e-6
BANK_WEIGHT = 0.8  # .60 and .15 of the ledger, normalised
COLUMNS = ("bank", "omnibus", "own bet left out", "chi-square", "KS", "MMD-Hamming")
OWN_BET = {
    "leak": "leak to the draft",
    "resample": "resample from the target",
    "accept": "ratio upside down",
    "|p": "absolute residual",
    "unnormalised": "unnormalised residual",
    "whole": "truncated draft, whole q",
    "same": "same coin",
    "temperature 1.1": "temperature 1.087",
    "temperature 1.02": "temperature 1.020",
    "temperature 1.005": "temperature 1.005",
    "top-p": "one kept token too few",
}


def own_bet(fault: Fault) -> str:
    """Name of the law in the bank that is this fault's; "" for blends that none names."""
    return next((bet for start, bet in OWN_BET.items() if fault.name.startswith(start)), "")


def blends(given: Instance) -> list[Fault]:
    """Faults that are in no bank: parts of known ones, and two at once."""
    p, q, logits = given.p, given.q, given.logits
    coin = next(fault.r for fault in faults(given) if fault.name == "same coin")
    laws = {
        "blend: 10% of the same coin": 0.9 * p + 0.1 * coin,
        "blend: leak 0.05": 0.95 * p + 0.05 * q,
        "blend: temperature 1.05": softmax(logits / 1.05),
        "blend: leak 0.05 and temperature 1.02": 0.95 * softmax(logits / 1.02) + 0.05 * q,
    }
    return [Fault(name, p, q, law / law.sum()) for name, law in laws.items()]


class Judged:
    """The tests on one pair of laws, from counts that grow."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.bank = FaultBank()
        self.table = self.bank.log_table(fault.p, fault.q)
        self.laws = np.array([bet.name for bet in self.bank.bets for _ in bet.sizes])
        self.scores = scores_of_orders(fault.p, fault.q)

    @cached_property
    def without_own(self) -> Floats:
        """Prior weights of the bank when the fault's own law is left out."""
        weights = np.where(self.laws == own_bet(self.fault), 0.0, np.exp(self.bank.log_prior))
        normalised: Floats = weights / weights.sum()
        return normalised

    def log_evidence(self, counts: Ints, leaves: Ints, rng: np.random.Generator) -> dict[str, float]:
        """Log e-value, or minus log p-value, of every test."""
        wealth = self.table @ counts
        omnibus = log_mean_exp(log_shape(leaves))
        left = log_mean_exp(wealth, self.without_own)
        both = np.array([left, omnibus])
        p = self.fault.p
        return {
            "bank": log_mean_exp(wealth, np.exp(self.bank.log_prior)),
            "omnibus": omnibus,
            "own bet left out": log_mean_exp(both, np.array([BANK_WEIGHT, 1 - BANK_WEIGHT])),
            "chi-square": -peers.log_p_chi_square(counts, p),
            "KS": -peers.log_p_ks(counts, p),
            "MMD-Hamming": -peers.log_p_mmd_hamming(counts, p, rng),
        }

    def run(self, rng: np.random.Generator, step: float, beyond: float) -> dict[str, float]:
        """Tokens at which each test first decides in one run, up to ``beyond`` times the limit."""
        limit = self.fault.limit(ALPHA)
        counts = np.zeros(len(self.fault.p), np.int64)
        leaves = np.zeros((len(self.scores), len(EDGES) - 1), np.int64)
        found: dict[str, float] = {}
        n, target = 0, max(2, int(0.4 * limit))
        while target <= beyond * limit + 30 and len(found) < len(COLUMNS):
            drawn = rng.multinomial(target - n, self.fault.r)
            counts += drawn
            possible = np.where(self.fault.p > 0, drawn, 0)
            leaves += np.stack([bins_of_counts(s, self.fault.p, possible, EDGES, rng) for s in self.scores])
            n = target
            for name, log_e in self.log_evidence(counts, leaves, rng).items():
                if log_e >= -np.log(ALPHA) and name not in found:
                    found[name] = n
            target = int(n * step) + 1
        return found


def measure(
    given: Instance, runs: int, rng: np.random.Generator, step: float = 1.06, beyond: float = 25, least: float = 30
) -> Iterator[tuple[Fault, dict[str, float]]]:
    """Median tokens over the limit, for every fault of the instance whose limit lies between ``least`` and 1e7."""
    for fault in [*faults(given), *blends(given)]:
        limit = fault.limit(ALPHA)
        if not least <= limit <= 1e7:
            continue
        judged = Judged(fault)
        results = [judged.run(rng, step, beyond) for _ in range(runs)]
        ratios = {name: float(np.median([found.get(name, np.inf) for found in results])) / limit for name in COLUMNS}
        yield fault, ratios


def bound(fault: Fault, column: str) -> float | None:
    """What the table must not exceed for one of our checks: 1.5 for a law in the bank, 2.5 for blends, 4.5 else."""
    blend = fault.name.startswith("blend")
    limits: dict[str, float | None] = {"bank": 2.5 if blend else 1.5, "omnibus": 4.5, "own bet left out": 4.5}
    return limits.get(column)


Progress = Callable[[str], None]
