"""The n of a fault of the ratio rule from the bets that are held: a bound by Markov's inequality, and no simulation.

What is needed is the law of the first token of a round (p, q and the fault's own law in closed form), and a bet whose products
are over such tokens alone: the bank on place 0 of a round, where every row adds one token. For a bet b with weight w in the
verdict, L = ln(1/alpha) + ln(1/w), and any t > 0,

    P(wealth after n rows < exp(L))  <=  exp(t L) E[prod b^-t]  =  exp(t L) E[(mean over contexts of M)^n],
    M = sum_x r(x) b(x)^-t

since rows take their contexts evenly from the audit's pool, and the outer mean is over pools: every audit makes its own. With
(1 - y)^n <= exp(-n y) it splits into a product over the pool's contexts, so that one mean of exp(-n (1 - M) / contexts) for
each kind of instance is all that is taken from a sample (of `SAMPLE` contexts). Tokens of p = 0 convict by themselves: there
b^-t is 0. LAW-4 likewise, with a bet that pays infinitely for a forbidden step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from conformance.checks.component_law import PER_KIND, ROUNDING, ROWS, VOCABULARY, plan_of
from conformance.checks.instances import KINDS, make_laws
from conformance.controls.control import SHARE, look_sizes
from conformance.statistics.bank import FaultBank
from conformance.statistics.evidence import Floats
from conformance.statistics.planning import BetTable
from conformance.statistics.step_log import NOTHING, Steps, support_violations
from specref.chance import Chance, Number
from specref.draft import Draft
from specref.laws import Law
from specref.rules import Rule

MISSED = 1e-9
"""A thousandth of the 1e-6 that is stated, since means are taken from a sample (whose scatter is a tenth of the logarithm)."""
SAMPLE = 64
"""Contexts of each kind from which the means over pools are taken."""
CONTEXTS = PER_KIND * VOCABULARY
"""Contexts of each kind in the pool of an audit, all drawn independently."""
POWERS = np.geomspace(0.02, 4, 32)
NOT_BOUNDED = (
    "The bound is taken where a fault is a rule over one draft whose branches can be followed, declared as the ratio rule. "
    "Elsewhere the restarts stay, because there is no product of bets over a fixed number of tokens with a known law: engines "
    "give tokens whose contexts come of the fault's own earlier tokens, trees have no single first token's law (siblings take "
    "turns), faults of other rows need the laws of these, and in faults of randomness decisions share numbers. They stay "
    "also where the bound comes to more than an audit's rows: no bet on tokens lies near the fault, or LAW-4 must fail and no "
    "single step is forbidden. What then proves it are bets on flags, and a round has as many flags as the flags decide."
)


class Followed(Chance):
    """Takes one branch of a round of one draft, and notes its odds."""

    weights: Floats

    def __init__(self, coin: bool) -> None:
        super().__init__()
        self.coin, self.asked, self.odds = coin, 0, 1.0

    def _accepts(self, numerator: Any, denominator: Any, number: Number) -> bool:
        self.asked += 1
        self.odds = min(1.0, float(numerator / denominator)) if denominator > 0 else float(numerator > 0)
        return self.coin

    def _picks(self, cumulative: Law, number: Number) -> int:
        self.weights = np.diff(cumulative, prepend=0) / cumulative[-1]
        return NOTHING


def first_tokens(rule: Rule, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """What a rule makes of one draft from q: P(x drafted and accepted) `[V]`, and P(x drafted, rejected, y emitted) `[V, V]`.

    Raises NotImplementedError for a rule that tosses more than one coin over a draft.

    >>> from specref.rules.chain import ratio
    >>> kept, replaced = first_tokens(ratio, np.array([.1, .9]), np.array([.5, .5]))
    >>> kept.tolist(), replaced.tolist()
    ([0.1, 0.5], [[0.0, 0.4], [0.0, 0.0]])
    """
    V = len(p)
    kept, replaced = np.zeros(V), np.zeros((V, V))
    for x in np.flatnonzero(q > 0).tolist():
        left = q[x]
        for coin in (True, False):
            if left <= 0:
                break
            chance = Followed(coin)
            verified = rule([p, p], Draft.claimed((x,), [q]), chance)
            if chance.asked > 1:
                raise NotImplementedError("a rule with several coins for a draft")
            mass = left * chance.odds if coin else left
            left -= mass
            if verified.accepted:
                kept[x] += mass
            elif verified.next_token == NOTHING:
                replaced[x] += mass * chance.weights
            else:
                replaced[x, verified.next_token] += mass
    return kept, replaced


@cache
def sample() -> tuple[Floats, Floats, BetTable, float]:
    """p, q `[kinds * SAMPLE, V]` as an audit of a verifier draws them, all bets on them, and the weight of place 0."""
    laws = make_laws(SAMPLE // VOCABULARY, 1, VOCABULARY, np.random.default_rng(0))
    p, q = (law.reshape(-1, VOCABULARY) for law in (laws.p, laws.q))
    plan = plan_of("bounded", "ratio", ROWS)
    return p, q, BetTable(FaultBank(), p, q), plan.checks["slot"] / (plan.k + 1)


def rows_needed(rule: Rule, requirements: Sequence[str], n: int) -> int | None:
    """Rows, as an audit of n looks at them, by which a fault of the ratio rule is missed with probability `MISSED` at most.

    None where there is no such bound up to n: see `NOT_BOUNDED`.

    >>> from specref.rules import rewired
    >>> from specref.rules.chain import ratio
    >>> rows_needed(rewired(ratio, residual=lambda p, q: p), ["LAW-3", "LAW-4"], 16_384)
    6144
    """
    p, q, table, weight = sample()
    steps = [first_tokens(rule, *pair) for pair in zip(p, q)]
    law = np.array([kept + replaced.sum(axis=0) for kept, replaced in steps])
    misses = [_by_bets(law, table, weight)] if "LAW-3" in requirements else []
    if "LAW-4" in requirements:
        gain = np.array([_forbidden(*pair, *step) for pair, step in zip(zip(p, q), steps)])
        misses.append([(0.0, gain)])
    for size in look_sizes(n, ROWS):
        if sum(min(_missed(stake, gain, size) for stake, gain in some) for some in misses) <= MISSED:
            return size
    return None


def _by_bets(law: Floats, table: BetTable, weight: float) -> list[tuple[float, Floats]]:
    """For every bet and power t: t L, and 1 - M in every context."""
    possible = table.p > 0
    found = []
    for j, prior in enumerate(table.bank.log_prior):
        must = -math.log(SHARE) - math.log(weight) - float(prior)
        for t in POWERS:
            with np.errstate(divide="ignore", over="ignore"):
                moment = np.where(possible, law * np.exp(-t * table.log_bet(j)), 0.0).sum(axis=1)
            found.append((float(t) * must, 1 - moment))
    return found


def _missed(stake: float, gain: Floats, n: int) -> float:
    """exp(t L) times the mean over pools of exp(-n times the mean gain of the pool's contexts)."""
    with np.errstate(over="ignore"):
        each = np.exp(-n * gain.reshape(len(KINDS), SAMPLE) / (len(KINDS) * CONTEXTS)).mean(axis=1)
    return float(np.exp(np.minimum(stake + CONTEXTS * np.log(each).sum(), 0.0)))


def _forbidden(p: Floats, q: Floats, kept: Floats, replaced: Floats) -> float:
    """How often the first step does what the ratio rule forbids."""
    x, y = (index.ravel() for index in np.indices(replaced.shape))
    drafts, emitted = np.concatenate([np.arange(len(p)), x]), np.concatenate([np.arange(len(p)), y])
    accepted = np.arange(len(drafts)) < len(p)
    steps = Steps(np.zeros(len(drafts), np.int64), drafts, accepted, emitted)
    wrong = np.any([*support_violations(steps, p, q, "ratio", ROUNDING).values()], axis=0)
    exact = support_violations(steps, p, q, "ratio")
    wrong |= np.any([mask for what, mask in exact.items() if "zero" in what or "certain" in what], axis=0)
    return float(np.concatenate([kept, replaced.ravel()])[wrong].sum())
