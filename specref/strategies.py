"""Hypothesis strategies for laws, models, drafts and trees, for property tests of rules, kernels and engines.

Small and awkward on purpose: zeros, ties, certain tokens, drafts equal to the target or disjoint from it. All shrink: a failing
test ends on few tokens, few drafts and small integers. Exact laws (Fractions) unless `exact=False` asks for float64.

    from hypothesis import given
    from specref import strategies

    @given(strategies.drafted_rounds())
    def test_my_verifier(round): ...
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from specref.draft import Draft
from specref.laws import NO_LAW, Law, rational, total
from specref.models import Kind, TableModel
from specref.proof.instances import DRAFT_KINDS, TARGET_KINDS
from specref.tree import TokenTree


@dataclass(frozen=True)
class DraftedRound:
    """What a verification rule is given: p `[k+1, V]` (a tree: `[N, V]`) and a draft."""

    p: list[Law]
    draft: Draft


def laws(vocabulary: int, *, exact: bool = True, largest: int = 9) -> st.SearchStrategy[Law]:
    """Laws `[V]` proportional to integers of 0 to `largest`, so zeros and ties are common.

    >>> from hypothesis import find
    >>> find(laws(3), lambda law: law[1] > law[0] > 0)           # the simplest such law
    array([Fraction(1, 3), Fraction(2, 3), Fraction(0, 1)], dtype=object)
    """
    weights = st.lists(st.integers(0, largest), min_size=vocabulary, max_size=vocabulary).filter(any)
    return weights.map(rational).map(lambda law: law if exact else _float(law))


def pairs(vocabulary: int, *, exact: bool = True) -> st.SearchStrategy[tuple[Law, Law]]:
    """Target and draft law `(p, q)`, each `[V]`: unrelated, equal, or of disjoint support.

    >>> from hypothesis import find
    >>> p, q = find(pairs(2), lambda pair: not (pair[0] * pair[1]).any())
    >>> p, q
    (array([Fraction(0, 1), Fraction(1, 1)], dtype=object), array([Fraction(1, 1), Fraction(0, 1)], dtype=object))
    """
    one, other = laws(vocabulary, exact=exact), laws(vocabulary, exact=exact)
    unrelated = st.tuples(one, other)
    equal = one.map(lambda law: (law, law))
    disjoint = st.integers(1, vocabulary - 1).flatmap(
        lambda cut: st.tuples(laws(vocabulary - cut, exact=exact), laws(cut, exact=exact)).map(
            lambda halves: (np.concatenate([halves[1] * 0, halves[0]]), np.concatenate([halves[1], halves[0] * 0]))
        )
    )
    return st.one_of(unrelated, equal, disjoint)


@st.composite
def models(
    draw: st.DrawFn, vocabulary: int, *, kinds: tuple[Kind, ...] = TARGET_KINDS, memory: int | None = None, exact: bool = True
) -> TableModel:
    """A `TableModel` of one of `kinds`, whose law depends on the context.

    >>> from hypothesis import find
    >>> find(models(3), lambda model: model.kind == "zeros").vocabulary
    3
    """
    return TableModel(vocabulary, draw(st.integers(0, 999)), draw(st.sampled_from(kinds)), memory=memory, exact=exact)


@st.composite
def model_pairs(
    draw: st.DrawFn, vocabulary: int, *, memory: int | None = None, exact: bool = True
) -> tuple[TableModel, TableModel]:
    """A target and a draft model for it, of any kinds: p = q, near, far and disjoint among them.

    >>> from hypothesis import find
    >>> target, drafter = find(model_pairs(3), lambda pair: pair[1].kind == "same")
    >>> bool((target.next_law((1,)) == drafter.next_law((1,))).all())
    True
    """
    target = draw(models(vocabulary, memory=memory, exact=exact))
    kind, seed = draw(st.sampled_from(DRAFT_KINDS)), draw(st.integers(0, 999))
    return target, TableModel(vocabulary, f"draft {seed}", kind, target=target, memory=memory, exact=exact)


@st.composite
def shapes(draw: st.DrawFn, max_nodes: int = 7, min_nodes: int = 1) -> tuple[int, ...]:
    """Parents `[N]` of a tree of up to `max_nodes` nodes, the root included.

    >>> from hypothesis import find
    >>> find(shapes(), lambda parents: parents.count(0) == 2)
    (-1, 0, 0)
    """
    nodes = draw(st.integers(min_nodes, max_nodes))
    return (-1, *(draw(st.integers(0, node - 1)) for node in range(1, nodes)))


@st.composite
def trees(draw: st.DrawFn, vocabulary: int, *, max_nodes: int = 7, distinct_siblings: bool = False) -> TokenTree:
    """A `TokenTree` of up to `max_nodes` nodes; with `distinct_siblings` no two siblings hold one token.

    >>> from hypothesis import find
    >>> find(trees(5), lambda tree: max(tree.depths) == 2).parents
    (-1, 0, 1)
    """
    parents = draw(shapes(max_nodes))
    if not distinct_siblings:
        return TokenTree([draw(st.integers(0, vocabulary - 1)) for _ in parents], parents)
    kept_as, tokens, kept_parents = {0: 0}, [draw(st.integers(0, vocabulary - 1))], [-1]
    free: dict[int, list[int]] = {}
    for node, parent in enumerate(parents[1:], start=1):
        left = free.setdefault(parent, list(range(vocabulary)))
        if parent in kept_as and left:
            kept_as[node] = len(tokens)
            tokens.append(left.pop(draw(st.integers(0, len(left) - 1))))
            kept_parents.append(kept_as[parent])
    return TokenTree(tokens, kept_parents)


@st.composite
def drafted_rounds(draw: st.DrawFn, *, max_vocabulary: int = 4, max_k: int = 3, exact: bool = True) -> DraftedRound:
    """A chain to verify: p `[k+1, V]` and k >= 0 tokens with the laws that they can have been drawn from.

    >>> from hypothesis import find
    >>> len(find(drafted_rounds(), lambda round: len(round.draft.tokens) == 2).p)
    3
    """
    vocabulary, k = draw(st.integers(2, max_vocabulary)), draw(st.integers(0, max_k))
    rows = [draw(pairs(vocabulary, exact=exact)) for _ in range(k)]
    tokens = [draw(_tokens_of(q)) for _, q in rows]
    bonus = draw(laws(vocabulary, exact=exact))
    return DraftedRound([*(p for p, _ in rows), bonus], Draft.claimed(tokens, [q for _, q in rows]))


@st.composite
def drafted_trees(draw: st.DrawFn, *, max_vocabulary: int = 4, max_nodes: int = 7, exact: bool = True) -> DraftedRound:
    """A tree to verify: p `[N, V]` and a tree whose siblings can have been drawn independently, one law for each parent.

    >>> from hypothesis import find
    >>> find(drafted_trees(), lambda round: len(round.draft.tree) == 3).draft.tree.parents
    (-1, 0, 0)
    """
    vocabulary = draw(st.integers(2, max_vocabulary))
    parents = draw(shapes(max_nodes))
    rows = [draw(pairs(vocabulary, exact=exact)) for _ in parents]
    tokens = [0, *(draw(_tokens_of(rows[parent][1])) for parent in parents[1:])]
    tree = TokenTree(tokens, parents)
    return DraftedRound(
        [p for p, _ in rows], Draft.claimed(tokens, [NO_LAW, *(rows[parent][1] for parent in parents[1:])], tree)
    )


def _tokens_of(law: Law) -> st.SearchStrategy[int]:
    return st.sampled_from([token for token, probability in enumerate(law) if probability > 0])


def _float(law: Law) -> Law:
    rounded: Law = law.astype(np.float64)
    rounded /= total(rounded)
    return rounded
