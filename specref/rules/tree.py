"""Tree rules. `p [N, V]`: the target's law after each node; the draft: a token, and for most rules a law, per node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, norm, positive_part, residual, total, without
from specref.rules import Verified
from specref.rules.block import Odds, at_most_one
from specref.tree import BadTree, TokenTree

First: TypeAlias = Callable[[Sequence[int], Law, Draft, Chance], tuple[int | None, Law]]


def greedy(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Temperature 0: keep the longest path of the target's most probable tokens, then emit that token. Ties: the lowest id.

    p `[N, V]`; any increasing function of it (logits) does as well. `chance` is not asked. Source: Miao et al. 2305.09781
    (SpecInfer), algorithm 2, VerifyGreedy.

    >>> from specref.chance import SampledChance
    >>> from specref.laws import rational
    >>> tree = TokenTree([7, 0, 1, 1], parents=[-1, 0, 0, 2])
    >>> greedy([rational([1, 3])] * 4, Draft.chosen(tree.tokens, tree), SampledChance(0))
    Verified(accepted=2, next_token=1, path=(2, 3))
    """
    tree = tree_of(draft)
    best = [int(law.argmax()) for law in p]
    path = tree.longest_accepted([token == best[parent] for token, parent in zip(tree.tokens, tree.parents)])
    return Verified(len(path), best[path[-1] if path else 0], path)


def sequential_one_hot(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Try the children one after the other as if each had been certain: what a rejected one had is taken from the target's law.

    p `[N, V]`. Lossless for children chosen in any way that does not look at this round's acceptance numbers: EAGLE-2 and -3,
    lookahead decoding, Medusa's tree with a lossless rule. A repeated sibling is harmless: nothing is left of it. Source: Li et
    al. 2406.16858 (EAGLE-2); Fu et al. 2402.02057 (lookahead decoding, verification by sampling).

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> tree = TokenTree([7, 0, 1], parents=[-1, 0, 0])
    >>> p = [rational([2, 1, 1])] * 3
    >>> numbers = {("accept", 1): 0.6, ("accept", 2): 0.4, ("emit",): 0.0}           # 1/2 rejects, then 1/4 of the 1/2 left
    >>> sequential_one_hot(p, Draft.chosen(tree.tokens, tree), ReplayedChance(numbers))
    Verified(accepted=1, next_token=0, path=(2,))
    """
    return walk(p, draft, chance, first_certain)


def first_certain(children: Sequence[int], r: Law, draft: Draft, chance: Chance) -> tuple[int | None, Law]:
    """The first of `children` that the law `r [V]` takes, each as if it had been certain; and what is left if none is.

    >>> from specref.chance import SampledChance
    >>> from specref.laws import rational
    >>> first_certain([], rational([1, 1]), Draft.chosen([]), SampledChance(0))
    (None, array([Fraction(1, 2), Fraction(1, 2)], dtype=object))
    """
    for child in children:
        x = draft.tokens[child]
        if chance.accepts(r[x], total(r), slot=("accept", child)):
            return child, r
        r = without(r, x)
    return None, r


def recursive_rejection(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Try the children one after the other by `ratio`, each against what the rejected ones have left of the target's law.

    p `[N, V]`; draft.laws[n] must be the law that node n was drawn from. Siblings drawn independently (SpecInfer's multi-step
    sampling) or without replacement (EAGLE-1, Sequoia) are one and the same rule: a sibling drawn without replacement has the
    smaller, renormalised law (`laws_without_replacement`). Handing over the unreduced q for all of them biases the output.

    Source: Miao et al. 2305.09781, algorithm 2, VerifyStochastic; Chen et al. 2402.12374 (Sequoia).

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import NO_LAW, rational
    >>> tree = TokenTree([7, 0, 1], parents=[-1, 0, 0])
    >>> p, q = rational([1, 1, 2]), rational([2, 1, 1])
    >>> draft = Draft.claimed(tree.tokens, [NO_LAW, q, rational([0, 1, 1])], tree)
    >>> numbers = {("accept", 1): 0.6, ("accept", 2): 0.0, ("emit",): 0.0}  # p/q = 1/2 rejects; token 2 alone is left
    >>> recursive_rejection([p, p, p], draft, ReplayedChance(numbers))
    Verified(accepted=0, next_token=2, path=())
    """
    return walk(p, draft, chance, first_accepted)


def first_accepted(children: Sequence[int], r: Law, draft: Draft, chance: Chance) -> tuple[int | None, Law]:
    """The first of `children` that the law `r [V]` takes by the ratio rule; and what is left of r if none is.

    >>> from specref.chance import SampledChance
    >>> from specref.laws import rational
    >>> first_accepted([], rational([1, 1]), Draft.chosen([]), SampledChance(0))
    (None, array([Fraction(1, 2), Fraction(1, 2)], dtype=object))
    """
    for child in children:
        x, q = draft.tokens[child], draft.laws[child]
        if chance.accepts(r[x], q[x], slot=("accept", child)):
            return child, r
        r = norm(residual(r, q))
    return None, r


def target_only(p: Sequence[Law], draft: Draft, chance: Chance, tau_acc: Any = 1, tau_single: Any = 1) -> Verified:
    """One number decides among all children of a node, each by its target probability: the draft's laws are not needed.

    p `[N, V]`. Child i is taken if u tau_acc < p(x_1) + .. + p(x_i), or, when its elder siblings were not, if
    p(x_i) >= tau_single; if none is, y ~ p without the children. With both thresholds at 1 and distinct siblings it is
    lossless, and has the law of `sequential_one_hot`. Smaller thresholds accept more and bias the output: on p = (.5, .3, .2)
    and the one child 1, tau_acc = .5 gives a total variation of 3/10, tau_single = .3 of 7/10. Source: SGLang's kernel
    `TreeSpeculativeSamplingTargetOnly`.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> tree = TokenTree([7, 0, 1], parents=[-1, 0, 0])
    >>> p = [rational([5, 3, 2])] * 3
    >>> target_only(p, Draft.chosen(tree.tokens, tree), ReplayedChance({("accept", 1): 0.6, ("emit",): 0.0}))
    Verified(accepted=1, next_token=0, path=(2,))

    Raises ValueError for a threshold outside (0, 1], BadTree for two siblings with one token.
    """
    for name, threshold in (("tau_acc", tau_acc), ("tau_single", tau_single)):
        if not 0 < threshold <= 1:
            raise ValueError(f"{name} is {threshold}; it must be more than 0 and at most 1")
    require_distinct_siblings(tree_of(draft))
    return walk(p, draft, chance, partial(first_by_one_number, tau_acc=tau_acc, tau_single=tau_single))


def first_by_one_number(
    children: Sequence[int], r: Law, draft: Draft, chance: Chance, tau_acc: Any, tau_single: Any
) -> tuple[int | None, Law]:
    """The child that the number of the first one decides for, or None; and the target's law without the children.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> r, draft = rational([5, 3, 2]), Draft.chosen([7, 1])
    >>> first_by_one_number([1], r, draft, ReplayedChance({("accept", 1): 0.5}), tau_acc=1, tau_single=1)
    (None, array([Fraction(1, 2), 0, Fraction(1, 5)], dtype=object))
    """
    if not children:
        return None, r
    shares: list[Any] = []
    summed: Any = 0
    reached: Any = 0
    rest = r
    for child in children:
        probability = r[draft.tokens[child]]
        summed = summed + probability
        upto = tau_acc if probability >= tau_single else max(reached, min(summed, tau_acc))
        shares.append(upto - reached)
        reached = upto
        rest = without(rest, draft.tokens[child])
    none = tau_acc - reached if rest.any() else 0  # where the children hold all of the law, rounding leaves no sliver
    taken = chance.picks([*shares, none], slot=("accept", children[0]))
    return (children[taken], r) if taken < len(children) else (None, rest)


def require_distinct_siblings(tree: TokenTree) -> None:
    """Raise BadTree if two siblings hold one token.

    >>> require_distinct_siblings(TokenTree([7, 1, 1], parents=[-1, 0, 0]))
    Traceback (most recent call last):
    specref.tree.BadTree: nodes 1 and 2 are siblings and both hold token 1; this rule needs distinct siblings
    """
    first: dict[tuple[int, int], int] = {}
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents)):
        elder = first.setdefault((parent, token), node)
        if elder != node:
            raise BadTree(
                f"nodes {elder} and {node} are siblings and both hold token {token}; this rule needs distinct siblings"
            )


def traversal(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Traversal verification: from the leaves up, keep the first path that its own number says yes to.

    p `[N, V]`; draft.laws[n] must be the law that node n was drawn from, with replacement or without. Visits the leftmost leaf
    first; a rejected node is taken away, which lowers its parent's target law, and the parent is asked once it has no children
    left. Never accepts fewer tokens than `recursive_rejection` on average; on a chain it is `block`.

    Source: Weng et al. 2505.12398, written without dividing and with the smaller law of each sibling in the draft.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import NO_LAW, rational
    >>> tree = TokenTree([7, 0, 1], parents=[-1, 0, 1])
    >>> p, q = rational([1, 3]), rational([1, 1])           # P of node 1 is 1/2, of node 2 min(1/2 * 3/2, 1) = 3/4
    >>> draft = Draft.claimed(tree.tokens, [NO_LAW, q, q], tree)
    >>> traversal([p, p, p], draft, ReplayedChance({("accept", 2): 0.7, ("emit",): 0.0}))
    Verified(accepted=2, next_token=0, path=(1, 2))
    """
    kept = keep_below(0, p[0], (1, 1), p, draft, chance)
    assert kept is not None  # the root is always kept
    node, weights = kept
    path = tree_of(draft).path(node)
    return Verified(len(path), chance.picks(weights, slot=("emit",)), path)


def keep_below(node: int, weights: Law, odds: Odds, p: Sequence[Law], draft: Draft, chance: Chance) -> tuple[int, Law] | None:
    """The node kept at `node` or below it, with the weights to emit from there; None if nothing is.

    odds: P, the probability to keep the path to `node`, as kept / of. weights `[V]`: what is left of the target's law after it,
    scaled to sum to `kept`. A rejected child with law q leaves rest = max(weights - of q, 0), and P becomes the h of block
    verification, Z / (Z + of - kept) with Z = sum(rest). At the root P is 1 throughout, so something is always left.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import NO_LAW, rational
    >>> tree = TokenTree([7, 0], parents=[-1, 0])
    >>> p, q = rational([1, 3]), rational([1, 1])
    >>> draft = Draft.claimed(tree.tokens, [NO_LAW, q], tree)
    >>> keep_below(0, p, (1, 1), [p, p], draft, ReplayedChance({("accept", 1): 0.6}))            # p/q = 1/2 rejects
    (0, array([0, Fraction(1, 4)], dtype=object))
    """
    for child in tree_of(draft).children(node):
        kept, of = odds
        x, q = draft.tokens[child], draft.laws[child]
        taken = at_most_one(weights[x], of * q[x])
        found = keep_below(child, taken[0] * p[child], taken, p, draft, chance)
        if found is not None:
            return found
        weights = residual(weights, of * q) if node == 0 else positive_part(weights - of * q)
        odds = total(weights), total(weights) + (of - kept)
    if node == 0 or chance.accepts(*odds, slot=("accept", node)):
        return node, weights
    return None


def walk(p: Sequence[Law], draft: Draft, chance: Chance, first: First) -> Verified:
    """From the root down: `first(children, p at the node, draft, chance)` takes a child or none, until none is taken.

    >>> from specref.chance import SampledChance
    >>> from specref.laws import rational
    >>> tree = TokenTree([7, 0, 1], parents=[-1, 0, 1])
    >>> the_eldest = lambda children, r, draft, chance: (children[0], r) if children else (None, r)
    >>> walk([rational([0, 1])] * 3, Draft.chosen(tree.tokens, tree), SampledChance(0), the_eldest)
    Verified(accepted=2, next_token=1, path=(1, 2))
    """
    tree = tree_of(draft)
    path: tuple[int, ...] = ()
    node = 0
    while True:
        child, left = first(tree.children(node), p[node], draft, chance)
        if child is None:
            return Verified(len(path), chance.picks(left, slot=("emit",)), path)
        path, node = (*path, child), child


def tree_of(draft: Draft) -> TokenTree:
    """The draft's tree. Raises BadTree if it is a chain of tokens without one.

    >>> tree_of(Draft.chosen([0, 1]))
    Traceback (most recent call last):
    specref.tree.BadTree: a tree rule needs a draft with a tree, got the chain (0, 1); use TokenTree.chain for one
    """
    if draft.tree is None:
        raise BadTree(f"a tree rule needs a draft with a tree, got the chain {draft.tokens}; use TokenTree.chain for one")
    return draft.tree
