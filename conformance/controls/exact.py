"""The exact size of a fault on the published instance: V = 4, one token, every branch taken."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import quad

from conformance.controls.control import Exact
from specref.chance import Chance, EnumeratedChance, exact_law
from specref.draft import Draft
from specref.generate import ModelDrafter, generate
from specref.laws import Law, rational, total_variation
from specref.models import TableModel, Tokens, sequence_law
from specref.proof import FirstToken, Instance, first_token, law_in_two_stages, variation_of_round
from specref.proof.first_token import P, Q
from specref.proof.instances import chain_shape
from specref.proof.subjects import Drafting, drawn_chain
from specref.rules import Rule
from specref.rules.chain import ratio
from specref.stopping import Stops


def one_token(
    rule: Rule,
    draw: Callable[[Chance], Draft] | Law = Q,
    *,
    claim: Law | None = None,
    shown: Law = P,
    wanted: Law = P,
    chance: type[Any] | None = None,
    on: str = "",
    kept: bool = True,
) -> Exact:
    """The size of a fault of `rule`; the arguments are those of `first_token`. on: the instance, where it is another.

    chance: an override of `number`, `accepts` or `picks`. kept: whether it means something here that a draft was kept.

    >>> from specref.rules import rewired
    >>> from specref.rules.chain import ratio
    >>> one_token(rewired(ratio, residual=lambda p, q: p)).variation()
    Fraction(3, 50)
    """

    @cache
    def law() -> FirstToken:
        enumerated: Any = EnumeratedChance if chance is None else type(chance.__name__, (chance, EnumeratedChance), {})
        return first_token(rule, draw, claim=claim, shown=shown, chance_type=enumerated)

    words = {"on": on} if on else {}
    return Exact(lambda: law().variation(wanted), (lambda: law().kept) if kept else None, **words)


def of_round(
    rule: Rule, k: int = 2, drafting: Drafting = drawn_chain, shape: tuple[int, ...] | None = None, seed: str = ""
) -> Exact:
    """The size of a fault that needs more than one token: a round of k drafts, completed by the target itself.

    >>> from specref.rules import rewired
    >>> from specref.rules.chain import ratio
    >>> of_round(rewired(ratio, residual=lambda p, q: p)).variation() > 0
    True
    """
    target, drafter = TableModel(3, f"target{seed}", memory=1), TableModel(3, f"draft{seed}", memory=1)

    @cache
    def variation() -> Fraction:
        instance = Instance(target, drafter, shape or chain_shape(k), seed)
        [draw] = drafting(instance, (), k + 2)
        return variation_of_round(law_in_two_stages(draw, target, (), rule), target)

    return Exact(variation, on=f"a round of {k} drafts, V = 3, table models 'target{seed}' and 'draft{seed}'")


def of_generation(chance: type[Any], rule: Rule = ratio, *, k: int = 1, tokens: int = 3, V: int = 3, seed: str = "") -> Exact:
    """The size of a fault of randomness that lasts longer than a round: whole outputs, no two branches merged."""
    target, drafter = TableModel(V, f"target{seed}", memory=1), TableModel(V, f"draft{seed}", memory=1)

    @cache
    def variation() -> Fraction:
        enumerated: Any = type(chance.__name__, (chance, EnumeratedChance), {})

        def output(some: Chance) -> Tokens:
            return generate(target, ModelDrafter(drafter), rule, (), k=k, stops=Stops(tokens), chance=some).tokens

        return Fraction(total_variation(exact_law(output, enumerated), sequence_law(target, (), tokens)))

    return Exact(variation, on=f"{tokens} tokens, {k} drafts a round, V = {V}, table models 'target{seed}' and 'draft{seed}'")


def same_gumbel() -> float:
    """Total variation where one vector of Gumbel noise (here as exponentials) draws the draft and then the residual.

    A draft x wins at a time t ~ Exp(1) with probability q(x), whatever t is; then another token v has noise q(v) t + Exp(1)
    instead of Exp(1), and the two tokens of the residual race with that.
    """
    p, q = (law.astype(float) for law in (P, Q))
    left = np.maximum(p - q, 0)
    one, other = np.flatnonzero(left)
    odds = left[one] / left[other]

    def one_first(t: float) -> float:
        """P((q t + e) / left is smaller for `one`), e and e' exponential."""
        ahead = odds * q[other] * t - q[one] * t
        if ahead >= 0:
            return float(1 - np.exp(-ahead) * odds**0 / (1 + odds))
        return float(np.exp(ahead / odds) * odds / (1 + odds))

    share, _ = quad(lambda t: np.exp(-t) * one_first(t), 0, np.inf)
    return float(left.sum() * abs(share - left[one] / left.sum()))


def low_probability_dropped() -> Exact:
    """The size of the fault of dropping a drafted token whose own probability is below 1/3, on a searched instance."""
    p, q = rational([4, 3, 1]), rational([2, 2, 1])

    def draw(chance: Chance) -> Draft:
        drawn = Draft.drawn(lambda _: q, 1, chance)
        [x] = drawn.tokens
        return drawn if 3 * q[x] >= 1 else Draft.chosen(())

    return one_token(ratio, draw, shown=p, wanted=p, on="p = (4, 3, 1)/8, q = (2, 2, 1)/5, dropped below 1/3", kept=False)
