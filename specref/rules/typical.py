"""Rules that trade the target's law for more accepted tokens. Their exact laws are reported, never called lossless."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, residual
from specref.rules import Verified
from specref.rules.chain import ratio
from specref.rules.tree import tree_of


def typical(
    p: Sequence[Law], draft: Draft, chance: Chance, epsilon: float = 0.09, delta: float = 0.3, sampled: bool = False
) -> Verified:
    """Medusa's typical acceptance: keep the longest path of tokens that the target finds likely enough.

    p `[N, V]` at the sampling temperature. A node is likely enough if p(x) > min(epsilon, delta exp(-H(p))), with H the entropy
    of p (`typical_threshold`). Of the longest such paths the most probable is kept, then the first. The token after it is the
    target's most probable one, or `sampled` from p. The draft's laws are not needed, and the output does not follow the target:
    improbable tokens never come from a draft, probable ones come whenever they were drafted.

    Source: Cai et al. 2401.10774 (Medusa), section 2.3.1; defaults of its `medusa_generate`.

    >>> from specref.chance import SampledChance
    >>> from specref.laws import rational
    >>> from specref.tree import TokenTree
    >>> tree = TokenTree([7, 0, 2], parents=[-1, 0, 0])
    >>> p = [rational([15, 4, 1])] * 3                      # p(2) = 1/20 is below the threshold of 9/100
    >>> typical(p, Draft.chosen(tree.tokens, tree), SampledChance(0))
    Verified(accepted=1, next_token=0, path=(1,))
    """
    tree = tree_of(draft)
    likely = [True] * len(tree)
    probability: list[Any] = [1] * len(tree)
    for node in range(1, len(tree)):
        law, x = p[tree.parents[node]], tree.tokens[node]
        likely[node] = law[x] > typical_threshold(law, epsilon, delta) and likely[tree.parents[node]]
        probability[node] = law[x] * probability[tree.parents[node]]
    kept = max((node for node in range(len(tree)) if likely[node]), key=lambda node: (tree.depths[node], probability[node]))
    after = p[kept]
    next_token = chance.picks(after, slot=("emit",)) if sampled else int(after.argmax())
    return Verified(tree.depths[kept], next_token, tree.path(kept))


def typical_threshold(law: Law, epsilon: float, delta: float) -> float:
    """min(epsilon, delta exp(-H)) for a `law [V]` of entropy H in nats; the logarithm is of p + 1e-5, as published.

    >>> import numpy as np
    >>> round(typical_threshold(np.full(20, 1 / 20), epsilon=0.09, delta=0.3), 4), typical_threshold(np.ones(1), 0.09, 0.3)
    (0.015, 0.09)
    """
    entropy = -sum(float(probability) * math.log(float(probability) + 1e-5) for probability in law)
    return min(epsilon, delta * math.exp(-entropy))


def ensemble(p: Sequence[Law], draft: Draft, chance: Chance, weight: Any) -> Verified:
    """`ratio` towards a mixture: each drafted position follows weight p + (1 - weight) q exactly, the bonus token p.

    p `[k+1, V]`; draft.laws `[k, V]` as for `ratio`. weight 1 is the ratio rule. Source: `assistant_ensemble_weight` of
    transformers.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> p, q = rational([1, 3]), rational([1, 1])
    >>> from fractions import Fraction
    >>> numbers = {("accept", 0): 0.7, ("emit",): 0.0}          # 3/8 instead of 1/4, over 1/2
    >>> ensemble([p, p], Draft.claimed([0], [q]), ReplayedChance(numbers), weight=Fraction(1, 2))
    Verified(accepted=1, next_token=0, path=())

    Raises ValueError for a weight outside [0, 1].
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight}; it must lie between 0 and 1")
    mixed = [weight * law + (1 - weight) * q for law, q in zip(p, draft.laws)]
    return ratio([*mixed, p[-1]], draft, chance)


def lenient(p: Sequence[Law], draft: Draft, chance: Chance, lenience: Any) -> Verified:
    """`ratio` with the draft's probabilities taken times `lenience` where it accepts: less than 1 accepts more.

    p `[k+1, V]`; draft.laws `[k, V]` as for `ratio`. lenience 1 is the ratio rule. Source: Leviathan et al. 2211.17192, A.5.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> p, q = rational([1, 3]), rational([1, 1])
    >>> from fractions import Fraction
    >>> numbers = {("accept", 0): 0.9, ("emit",): 0.0}          # 1/4 over 1/4: always accepted
    >>> lenient([p, p], Draft.claimed([0], [q]), ReplayedChance(numbers), lenience=Fraction(1, 2))
    Verified(accepted=1, next_token=0, path=())

    Raises ValueError for a lenience outside [0, 1].
    """
    if not 0 <= lenience <= 1:
        raise ValueError(f"lenience is {lenience}; it must lie between 0 and 1")
    for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
        if not chance.accepts(p[i][x], lenience * q[x], slot=("accept", i)):
            return Verified(i, chance.picks(residual(p[i], q), slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))
