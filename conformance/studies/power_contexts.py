"""Many contexts: a mixture of products against a product of mixtures, and contexts chosen adaptively."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.statistics.adaptive import growth_rates, next_contexts
from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats, log_mean_exp
from conformance.statistics.fault_laws import same_coin
from conformance.studies.instances import Instance, instance, softmax

ALPHA = 1e-6


def mixture_of_products(contexts: int, share: float, per_context: int, rng: np.random.Generator) -> tuple[float, float]:
    """Log e-value after ``per_context`` tokens of a leak in each context: mixture of products, product of mixtures."""
    bank = FaultBank()
    prior = np.exp(bank.log_prior)
    pool = [instance(16, seed=seed) for seed in range(60)]
    tables = [bank.log_table(given.p, given.q) for given in pool]
    wealth = np.zeros(len(bank))
    separate = 0.0
    for c in range(contexts):
        given, table = pool[c % 60], tables[c % 60]
        counts = rng.multinomial(per_context, (1 - share) * given.p + share * given.q)
        wealth += table @ counts
        separate += log_mean_exp(table @ counts, prior)
    return log_mean_exp(wealth, prior), separate


@dataclass
class Pool:
    """Forty contexts: 30 mild, 5 nearly equal, 5 hostile; V = 64."""

    bank: FaultBank
    instances: list[Instance]
    tables: list[Floats]
    rates: Floats


def pool() -> Pool:
    """The published pool."""
    given: list[Instance] = []
    for c in range(40):
        near = c >= 30
        one = instance(64, seed=100 + c, noise=0.4 if near else 1.0, acceptance=0.9 if near else 0.7)
        given.append(Instance(one.name, one.p, softmax(-0.5 * one.logits), one.logits) if c >= 35 else one)
    bank = FaultBank()
    p, q = np.array([one.p for one in given]), np.array([one.q for one in given])
    return Pool(bank, given, [bank.log_table(one.p, one.q) for one in given], growth_rates(bank, p, q))


def faulty_laws(given: Pool, fault: str) -> Floats:
    """Output laws ``[C, V]`` of one fault on every context of the pool; "" for the correct engine."""
    laws: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
        "": lambda p, q, x: p,
        "leak 3%": lambda p, q, x: 0.97 * p + 0.03 * q,
        "leak 10%": lambda p, q, x: 0.9 * p + 0.1 * q,
        "resample from p": lambda p, q, x: np.minimum(p, q) + (1 - np.minimum(p, q).sum()) * p,
        "same coin": lambda p, q, x: same_coin(p[None], q[None])[0],
        "temperature 1.02": lambda p, q, x: softmax(x / 1.02),
        "temperature 1.1": lambda p, q, x: softmax(x / 1.1),
    }
    return np.array([laws[fault](one.p, one.q, one.logits) for one in given.instances])


def tokens_to_detect(
    given: Pool, laws: Floats, adaptive: bool, rng: np.random.Generator, cap: float = 4e5, alpha: float = ALPHA
) -> float:
    """Tokens until the bank decides; rounds grow by a twentieth; infinite if it does not within ``cap``."""
    wealth, n = np.zeros(len(given.bank)), 0
    while n < cap:
        size = max(10, n // 20)
        if adaptive:
            chosen = next_contexts(given.bank, wealth, given.rates, size, rng)
        else:
            chosen = rng.integers(0, len(laws), size)
        for c, times in zip(*np.unique(chosen, return_counts=True)):
            wealth += given.tables[c] @ rng.multinomial(times, laws[c])
        n += size
        if log_mean_exp(wealth, np.exp(given.bank.log_prior)) >= -np.log(alpha):
            return n
    return float("inf")
