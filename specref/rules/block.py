"""Block verification: accept or reject whole prefixes of the draft together, never fewer tokens than `ratio` on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, positive_part, residual, total
from specref.rules import Verified

Odds: TypeAlias = tuple[Any, Any]
"""A probability as (numerator, denominator), so that nothing is divided."""


def block(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Block verification: keep the longest prefix whose own number says yes, then draw from that prefix's residual.

    p `[k+1, V]`; draft.laws `[k, V]` must be the laws that the tokens were drawn from. In the paper's letters, P_i is the joint
    ratio of the first i drafted tokens, cut at 1 after every token (`joint_ratios`), and a prefix of i tokens is kept if
    u_i < h_i (`stopping_odds`); then y ~ max(P_i p_{i+1} - q_{i+1}, 0). Nobody drafted a token k+1, so nothing is subtracted
    there: h_k is P_k and the bonus is drawn from p_{k+1}. The numbers must belong to the round: named by absolute position, as
    token matching names its own, they would be read again in later rounds and bias the output.

    Source: Sun et al. 2403.10444, algorithm 2. Equal to `ratio` for k = 1, and to `traversal` on a chain.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> p, q = rational([1, 3]), rational([1, 1])           # token 0: p/q = 1/2; token 1: p/q = 3/2
    >>> draft = Draft.claimed([0, 1], [q, q])               # P_1 = 1/2, P_2 = min(1/2 * 3/2, 1) = 3/4
    >>> block([p, p, p], draft, ReplayedChance({("accept", 1): 0.7, ("emit",): 0.0}))
    Verified(accepted=2, next_token=0, path=())
    >>> block([p, p, p], draft, ReplayedChance({("accept", 1): 0.8, ("accept", 0): 0.1, ("emit",): 0.0}))
    Verified(accepted=0, next_token=1, path=())
    """
    q = (*draft.laws, 0 * p[-1])
    joint = joint_ratios(p, draft)
    i = len(draft.tokens)
    while i > 0 and not chance.accepts(*stopping_odds(joint[i], p[i], q[i]), slot=("accept", i - 1)):
        i -= 1
    kept, of = joint[i]
    return Verified(i, chance.picks(residual(kept * p[i], of * q[i]), slot=("emit",)))


def joint_ratios(p: Sequence[Law], draft: Draft) -> list[Odds]:
    """P_0..P_k as odds: P_0 = 1 and P_i = min(P_{i-1} p_i(x_i) / q_i(x_i), 1).

    >>> from specref.laws import rational
    >>> p, q = rational([1, 3]), rational([1, 1])
    >>> joint_ratios([p, p, p], Draft.claimed([0, 1], [q, q]))
    [(1, 1), (Fraction(1, 4), Fraction(1, 2)), (Fraction(3, 16), Fraction(1, 4))]
    """
    joint: list[Odds] = [(1, 1)]
    for law, x, q in zip(p, draft.tokens, draft.laws):
        kept, of = joint[-1]
        joint.append(at_most_one(kept * law[x], of * q[x]))
    return joint


def at_most_one(numerator: Any, denominator: Any) -> Odds:
    """min(numerator / denominator, 1) as odds; 0/0 is 0, as for `Chance.accepts`.

    >>> at_most_one(3, 2), at_most_one(1, 2), at_most_one(0, 0)
    ((1, 1), (1, 2), (0, 1))
    """
    if numerator < denominator:
        return numerator, denominator
    return (1, 1) if numerator > 0 else (0, 1)


def stopping_odds(joint: Odds, p: Law, q: Law) -> Odds:
    """h = Z / (Z + 1 - P) where Z = sum(max(P p - q, 0)), for the laws `p [V]`, `q [V]` after a prefix of joint ratio P.

    Where P = 1 and p = q this is 0/0, which rejects: a longer prefix has been kept by then, for its own h is 1.

    >>> from specref.laws import rational
    >>> stopping_odds((1, 2), rational([7, 1]), rational([1, 3]))        # Z = 3/16, h = (3/16) / (11/16)
    (Fraction(3, 8), Fraction(11, 8))
    """
    kept, of = joint
    Z = total(positive_part(kept * p - of * q))
    return Z, Z + (of - kept)
