"""The exact law of the first token of a round, on one target and one draft law: how large a fault is, and what is kept.

`P` and `Q` are the laws on which the sizes of published faults are stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from specref.chance import Chance, EnumeratedChance, exact_law
from specref.draft import Draft
from specref.laws import Law, rational, total_variation
from specref.proof.rounds import verify
from specref.rules import Rule
from specref.tree import TokenTree

P, Q = rational([10, 60, 25, 5]), rational([30, 35, 10, 25])
"""Target and draft law, V = 4."""


@dataclass(frozen=True)
class FirstToken:
    """The law of the first emitted token, and the probability that it was a drafted one."""

    law: dict[int, Fraction]
    kept: Fraction

    def variation(self, wanted: Law = P) -> Fraction:
        """Total variation of the token from the `wanted` law `[V]`."""
        return Fraction(total_variation(self.law, dict(enumerate(wanted))))


def first_token(
    rule: Rule,
    draw: Callable[[Chance], Draft] | Law = Q,
    *,
    claim: Law | None = None,
    shown: Law = P,
    chance_type: Callable[..., EnumeratedChance] = EnumeratedChance,
) -> FirstToken:
    """What `rule` emits first in one round, exactly.

    draw: how the draft is made, or the law `[V]` that its one token is drawn from. claim: the law that it is said to come from,
    if that is another. shown: the target's law `[V]` that the rule is given at every position.

    >>> from specref.rules import rewired
    >>> from specref.rules.chain import ratio
    >>> first_token(ratio).variation(), first_token(ratio).kept
    (Fraction(0, 1), Fraction(3, 5))
    >>> first_token(rewired(ratio, residual=lambda p, q: p)).variation()       # resampled from p after a rejection
    Fraction(3, 50)
    """

    def one_round(chance: Chance) -> tuple[int, bool]:
        draft = draw(chance) if callable(draw) else Draft.drawn(lambda _: draw, 1, chance)
        if claim is not None:
            draft = Draft.claimed(draft.tokens, [claim])
        emitted = verify([shown] * (len(draft.tokens) + 1), draft, rule, chance)
        return emitted[0], len(emitted) > 1

    law: dict[int, Fraction] = {}
    kept = Fraction(0)
    for (token, was_kept), probability in exact_law(one_round, chance_type).items():
        law[token] = law.get(token, Fraction(0)) + probability
        kept += probability * was_kept
    return FirstToken(law, kept)


def chosen_chain(tokens: Sequence[int]) -> Callable[[Chance], Draft]:
    """A way to draw: always these tokens, chosen.

    >>> from specref.rules.chain import one_hot_ratio
    >>> first_token(one_hot_ratio, chosen_chain([1])).kept
    Fraction(3, 5)
    """
    return lambda chance: Draft.chosen(tokens)


def chosen_siblings(tokens: Sequence[int]) -> Callable[[Chance], Draft]:
    """A way to draw: always a root with these children, chosen.

    >>> from specref.rules.tree import sequential_one_hot
    >>> first_token(sequential_one_hot, chosen_siblings([1, 2])).kept
    Fraction(17, 20)
    """
    tree = TokenTree([0, *tokens], [-1] + [0] * len(tokens))
    return lambda chance: Draft.chosen(tree.tokens, tree)
