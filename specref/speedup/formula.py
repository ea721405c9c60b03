"""From laws to tokens per round to speed-up, without a machine: what acceptance buys if a pass costs what it costs.

The acceptance of a drafted token is sum(min(p, q)) = `laws.overlap(p, q)`. The formulas with one number `acceptance` assume
that every position has the same one, whatever happened before. Real acceptance varies with the context; `tokens_per_round` is
exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from specref.laws import Law, norm, overlap, positive_part, total, without
from specref.models import LanguageModel, Tokens

Siblings = Literal["with_replacement", "without_replacement", "chosen"]


def expected_tokens(acceptance: Any, k: int) -> Any:
    """Mean number of tokens that a round of k drafts emits: 1 + a + a^2 + ... + a^k = (1 - a^(k+1)) / (1 - a).

    Source: Leviathan et al. 2211.17192, equation 1.

    >>> expected_tokens(0.5, 3), expected_tokens(1, 3), expected_tokens(0, 3)
    (1.875, 4, 1)

    Raises ValueError for an acceptance outside [0, 1] or a negative k.
    """
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance is {acceptance}; it is a probability, between 0 and 1")
    if k < 0:
        raise ValueError(f"k is {k}; a round drafts 0 tokens or more")
    return 1 + sum(acceptance**i for i in range(1, k + 1))


def tokens_per_round(target: LanguageModel, draft_model: LanguageModel, context: Tokens, k: int) -> Any:
    """The exact mean number of tokens of one round of the ratio rule after `context`, for models with a small vocabulary.

    Each drafted prefix is drawn and kept with probability min(p, q) at every step, so the mean is the sum over all prefixes of
    0 to k tokens of the product of min(p, q) along them. `expected_tokens` of the mean acceptance is something else, because
    acceptances along a text go up and down together.

    >>> from specref.models import TableModel
    >>> target, small = TableModel(3, seed=1), TableModel(3, seed=2)
    >>> tokens_per_round(target, small, (), 1) == 1 + overlap(target.next_law(()), small.next_law(()))
    True
    """
    if k == 0:
        return 1
    kept = np.minimum(target.next_law(context), draft_model.next_law(context))
    return 1 + sum(
        probability * tokens_per_round(target, draft_model, (*context, token), k - 1)
        for token, probability in enumerate(kept)
        if probability
    )


def sibling_acceptance(p: Law, q: Law, siblings: int, how: Siblings) -> Any:
    """The probability that one of several siblings is accepted, for `p [V]` and `q [V]`: the tree form of sum(min(p, q)).

    how: "with_replacement", drawn independently from q (SpecInfer 2305.09781); "without_replacement", each from what the elder
    ones left of q (Sequoia 2402.12374), which goes through all orders of tokens, so keep V and `siblings` small; "chosen", the
    most probable tokens of q, verified as one-hot: p of all of them.

    >>> from specref.laws import rational
    >>> p, q = rational([4, 3, 2, 1]), rational([1, 2, 3, 4])
    >>> [str(sibling_acceptance(p, q, 2, how)) for how in ("with_replacement", "without_replacement", "chosen")]
    ['18/25', '107/140', '3/10']
    """
    if siblings == 0:
        return total(p * 0)
    if how == "chosen":
        best = sorted(range(len(q)), key=lambda token: -q[token])[:siblings]
        return total(p[best])
    accepted = overlap(p, q)
    left = positive_part(p - q)
    if siblings == 1 or not left.any():
        return accepted
    left = norm(left)
    if how == "with_replacement":
        return accepted + (1 - accepted) * sibling_acceptance(left, q, siblings - 1, how)
    for token, rejected in enumerate(positive_part(q - p)):
        rest = without(q, token)
        if rejected and rest.any():
            accepted = accepted + rejected * sibling_acceptance(left, norm(rest), siblings - 1, how)
    return accepted


def tokens_of_tree(parents: Sequence[int], by_rank: Sequence[Any]) -> Any:
    """Mean number of tokens that a round with a tree emits: 1 + the sum over nodes of the chance that its whole path is kept.

    parents `[N]`, node 0 the root. by_rank: the probability that the child of that rank (0 first, by node number) is the one
    accepted, given that its parent was, the same at every node. Source: Sequoia 2402.12374, section 3.1.

    >>> tokens_of_tree([-1, 0, 0, 1], by_rank=[0.5, 0.25])          # 1 + .5 + .25 + .5 * .5
    2.0

    Raises ValueError if a node has more children than `by_rank` has entries.
    """
    kept: list[Any] = [1]
    children = [0] * len(parents)
    for parent in parents[1:]:
        rank = children[parent]
        if rank >= len(by_rank):
            raise ValueError(f"node {parent} has more than {len(by_rank)} children; give by_rank an entry for each")
        children[parent] += 1
        kept.append(kept[parent] * by_rank[rank])
    return sum(kept)


def best_tree(by_rank: Sequence[float], nodes: int) -> list[int]:
    """The parents `[nodes]` of the tree, root included, that emits most tokens when acceptance depends on the rank alone.

    A node is worth the chance that its path is kept, never more than its parent is, so taking the most valuable node that can
    be added, again and again, is optimal. by_rank must not rise.

    >>> best_tree([0.6, 0.2], 5)                                     # three in a row before a second child is worth it
    [-1, 0, 1, 2, 0]

    Raises ValueError for rising `by_rank` or fewer than 1 node.
    """
    if nodes < 1 or any(later > earlier for earlier, later in pairwise(by_rank)):
        raise ValueError(f"give 1 node or more and falling acceptance by rank, got {nodes} and {list(by_rank)}")
    parents: list[int] = []
    waiting: list[tuple[float, int, int, int]] = [(-1.0, 0, -1, -1)]  # (-value, age, parent, rank)
    value_of: list[float] = []
    age = 0
    while len(parents) < nodes and waiting:
        negative_value, _, parent, rank = heapq.heappop(waiting)
        node = len(parents)
        parents.append(parent)
        value_of.append(-negative_value)
        offers = [(node, 0)] + ([(parent, rank + 1)] if parent >= 0 else [])
        for under, of_rank in offers:
            if of_rank < len(by_rank):
                age += 1
                heapq.heappush(waiting, (-value_of[under] * by_rank[of_rank], age, under, of_rank))
    return parents


def speed_up(acceptance: float, k: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """How many times faster than plain decoding: expected tokens / (k draft_cost + verify_cost).

    Costs in target passes over one token: `draft_cost` c of one draft pass, `verify_cost` of the pass over k + 1 tokens (1
    while memory-bound). Source: Leviathan et al. 2211.17192, theorem 3.8.

    >>> round(speed_up(0.8, 5, draft_cost=0.05), 2)
    2.95
    """
    return float(expected_tokens(acceptance, k)) / (k * draft_cost + verify_cost)


def best_k(acceptance: float, draft_cost: float, longest: int = 32) -> int:
    """The k in 1..longest with the largest `speed_up`. It may still be below 1: then do not speculate.

    >>> [best_k(acceptance, draft_cost=0.05) for acceptance in (0.4, 0.6, 0.8, 0.9)]
    [2, 4, 8, 13]
    """
    return max(range(1, longest + 1), key=lambda k: speed_up(acceptance, k, draft_cost))


def break_even(k: int, draft_cost: float, verify_cost: float = 1.0) -> float:
    """The acceptance at which speculation with k drafts is as fast as plain decoding; below it, it is slower.

    The rule of thumb "at least 40%" is about right for 7 drafts from a model of a tenth of the cost, and far too strict for a
    cheap draft:

    >>> [round(break_even(k, draft_cost=0.1), 2) for k in (1, 4, 7)], round(break_even(5, draft_cost=0.02), 2)
    ([0.1, 0.29, 0.41], 0.09)

    Raises ValueError if even an acceptance of 1 is too slow.
    """
    needed = k * draft_cost + verify_cost
    if needed > k + 1:
        raise ValueError(f"a round costs {needed} target passes and emits at most {k + 1} tokens: no acceptance is enough")
    if needed <= 1:
        return 0.0
    return float(brentq(lambda acceptance: expected_tokens(acceptance, k) - needed, 0.0, 1.0))


def acceptance_from_share(share: float, k: int) -> float:
    """The per-token acceptance at which that `share` of all drafted tokens is accepted, (expected tokens - 1) / k = share.

    Published "acceptance rates" are either of the two, and the share is the smaller one: a token behind a rejected one counts
    as not accepted.

    >>> round(acceptance_from_share(0.7, 4), 3)
    0.862
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it lies between 0 and 1")
    return float(brentq(lambda acceptance: (expected_tokens(acceptance, k) - 1) / k - share, 0.0, 1.0))
