"""Faults composed at random, so that no bet can have been made for them: a fault of the rule, where it acts, and how often."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from conformance.checks.component_law import ROWS
from conformance.controls.control import Audit, Control, Look
from conformance.controls.stages.verifiers import ChainUnderTest, audit_verifier
from specref.chance import Chance, SampledChance
from specref.draft import Draft
from specref.laws import Law, one_hot, positive_part, residual
from specref.rules import Rule, Verified

LARGEST = 256 * ROWS
"""Measured on one of the weakest (of half of q, at the last draft, in 3/4 of them): 64 * ROWS missed 3 of 20, this none."""
RATES = (Fraction(1, 2), Fraction(3, 4), Fraction(1))
PLACES: dict[str, Callable[[int, int], bool]] = {
    "at every draft": lambda i, k: True,
    "at the first draft": lambda i, k: i == 0,
    "at the last draft": lambda i, k: i == k - 1,
    "at every other draft": lambda i, k: i % 2 == 0,
}

Residual = Callable[[Law, Law], Law]
Odds = Callable[[float, float], tuple[float, float]]


def weights_or_p(weights: Law, p: Law) -> Law:
    """The weights, or p where they are empty."""
    return weights if weights.any() else p


RESIDUALS: dict[str, Residual] = {
    "drawn from p": lambda p, q: p,
    "drawn from q": lambda p, q: q,
    "the residual squared": lambda p, q: positive_part(p - q) ** 2,
    "its argmax": lambda p, q: one_hot(int(positive_part(p - q).argmax()), like=p),
    "the absolute difference": lambda p, q: weights_or_p(abs(p - q), p),
    "without its likeliest token": lambda p, q: weights_or_p(
        positive_part(p - q) * (np.arange(len(p)) != positive_part(p - q).argmax()), p
    ),
    "the next token id": lambda p, q: np.roll(positive_part(p - q), 1),
    "of half of q": lambda p, q: positive_part(p - q / 2),
}
ODDS: dict[str, Odds] = {
    "accepted always": lambda p, q: (1, 1),
    "by p alone": lambda p, q: (p, 1),
    "by the square root of the ratio": lambda p, q: ((p * q) ** 0.5, q),
    "by the ratio squared": lambda p, q: (min(p, q) ** 2, q * q),
    "by half the ratio": lambda p, q: (min(p, q) / 2, q),
    "by 1 - q": lambda p, q: (1 - q, 1),
    "by the ratio and a tenth": lambda p, q: (p + q / 10, q),
}


def composed(seed: int, count: int = 20) -> list[Control]:
    """`count` different faults of the ratio rule, made from `seed`.

    >>> composed(1, count=2)[0].id != composed(2, count=2)[0].id
    True
    """
    rng = random.Random(f"composed {seed}")
    found: dict[str, Control] = {}
    while len(found) < count:
        what, place, rate = rng.choice([*RESIDUALS, *ODDS]), rng.choice([*PLACES]), rng.choice(RATES)
        subject = "a rejected draft replaced by" if what in RESIDUALS else "a draft"
        id = f"{subject} {what}, {place}, {'always' if rate == 1 else f'in {rate} of them'}"
        found[id] = Control(id, "composed", "ratio", ("LAW-3",), _audit(faulty(what, place, rate)))
    return list(found.values())


def faulty(what: str, place: str, rate: Fraction) -> Rule:
    """The ratio rule with a fault that acts at some drafts, with some probability."""

    def rule(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
        k = len(draft.tokens)
        for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
            acts = PLACES[place](i, k) and chance.accepts(float(rate), slot=("fault", i))
            odds = ODDS[what](p[i][x], q[x]) if acts and what in ODDS else (p[i][x], q[x])
            if not chance.accepts(*odds, slot=("accept", i)):
                left = RESIDUALS[what](p[i], q) if acts and what in RESIDUALS else residual(p[i], q)
                return Verified(i, chance.picks(weights_or_p(left, p[i]), slot=("emit",)))
        return Verified(k, chance.picks(p[-1], slot=("emit",)))

    return rule


def _audit(rule: Rule) -> Audit:
    def looks(seed: int, n: int) -> Iterator[Look]:
        verifier = ChainUnderTest("ratio", rule, chance=SampledChance)
        return audit_verifier(verifier, seed, n, [ROWS, 3 * ROWS, 12 * ROWS, 64 * ROWS, n])

    return Audit("chain verifier", "rows", LARGEST, looks)
