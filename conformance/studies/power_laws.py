"""Tokens to detect a fault of the output law, divided by Stein's limit, for our checks and for others'."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats, Ints
from conformance.statistics.fixed_laws import FixedLaws
from conformance.statistics.tree import LEAVES, log_shape
from conformance.studies import peers
from conformance.studies.instances import Fault, Instance, faults, softmax

ALPHA = 1e-6
BANK_WEIGHT = 0.8  # .60 and .15 of the ledger, normalised
OURS = ("bank", "omnibus", "own bet left out")
PEERS = ("chi-square", "KS", "MMD-Hamming")
COLUMNS = (*OURS, *PEERS)
RUNS_OF_OURS = 8
"""Our own checks are run this many times as often as the others': a median of 25 runs is off by a fifth, where a single rare
token decides by much more, and ours are what is promised."""
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
    """The tests on one pair of laws, from counts ``[runs, V]`` that grow side by side."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.bank = FaultBank()
        self.fixed = FixedLaws(self.bank, fault.p, fault.q)
        prior = np.exp(self.bank.log_prior)
        self.named = np.array([bet.name == own_bet(fault) for bet in self.bank.bets for _ in bet.sizes])
        left = np.where(self.named, 0.0, prior)
        with np.errstate(divide="ignore"):
            self.log_prior_without_own = np.log(left / left.sum())

    def of_ours(self, counts: Ints, leaves: Ints) -> dict[str, Floats]:
        """Log e-values of our checks, ``[runs]`` each."""
        wealth = counts @ self.fixed.log_table.T
        omnibus = logsumexp(log_shape(leaves), axis=0) - np.log(len(leaves))
        left = logsumexp(wealth + self.log_prior_without_own, axis=1)
        return {
            "bank": logsumexp(wealth + self.bank.log_prior, axis=1),
            "omnibus": omnibus,
            "own bet left out": np.logaddexp(np.log(BANK_WEIGHT) + left, np.log(1 - BANK_WEIGHT) + omnibus),
        }

    def of_peers(self, counts: Ints, rng: np.random.Generator) -> dict[str, Floats]:
        """Minus log p-values of the tests that others use, ``[runs]`` each."""
        p = self.fault.p
        return {
            "chi-square": -np.array([peers.log_p_chi_square(row, p) for row in counts]),
            "KS": -np.array([peers.log_p_ks(row, p) for row in counts]),
            "MMD-Hamming": -np.array([peers.log_p_mmd_hamming(row, p, rng) for row in counts]),
        }

    def tokens(
        self, columns: tuple[str, ...], runs: int, rng: np.random.Generator, step: float, beyond: float
    ) -> dict[str, float]:
        """Median tokens at which each of `OURS` or of `PEERS` first decides; infinite beyond ``beyond`` times the limit."""
        limit = self.fault.limit(ALPHA)
        counts = np.zeros((runs, len(self.fault.p)), np.int64)
        leaves = np.zeros((len(self.fixed.leaves), runs, LEAVES), np.int64)
        found = {name: np.full(runs, np.inf) for name in columns}
        n, target = 0, max(2, int(0.3 * limit))
        while target <= beyond * limit + 30:
            drawn = rng.multinomial(target - n, self.fault.r, size=runs)
            counts += drawn
            n, target = target, int(target * step) + 1
            if columns == OURS:
                leaves += np.stack([spread(np.where(self.fault.p > 0, drawn, 0), rng) for spread in self.fixed.leaves])
                logs = self.of_ours(counts, leaves)
            else:
                logs = self.of_peers(counts, rng)
            for name, log_e in logs.items():
                found[name][(log_e >= -np.log(ALPHA)) & np.isinf(found[name])] = n
            if all(np.isfinite(tokens).mean() > 0.5 for tokens in found.values()):
                break
        return {name: float(np.median(tokens)) for name, tokens in found.items()}


def measure(
    given: Instance, runs: int, rng: np.random.Generator, step: float = 1.04, beyond: float = 20, least: float = 30
) -> Iterator[tuple[Fault, dict[str, float]]]:
    """Median tokens over the limit, for every fault of the instance whose limit lies between ``least`` and 1e7."""
    for fault in [*faults(given), *blends(given)]:
        limit = fault.limit(ALPHA)
        if not least <= limit <= 1e7:
            continue
        judged = Judged(fault)
        found = judged.tokens(OURS, RUNS_OF_OURS * runs, rng, step, beyond) | judged.tokens(PEERS, runs, rng, step, beyond)
        yield fault, {name: tokens / limit for name, tokens in found.items()}


def bound(fault: Fault, column: str) -> float | None:
    """What the table must not exceed for one of our checks: 1.5 for a law in the bank, 2.5 for blends, 4.5 else."""
    blend = fault.name.startswith("blend")
    limits: dict[str, float | None] = {"bank": 2.5 if blend else 1.5, "omnibus": 4.5, "own bet left out": 4.5}
    return limits.get(column)
