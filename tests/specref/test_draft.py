"""Drafts say how their tokens were found, and drawn ones really follow the laws they keep."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from specref import strategies
from specref.chance import EnumeratedChance, SampledChance, exact_law
from specref.draft import Draft
from specref.laws import NO_LAW, BadLaw, checked, rational
from specref.models import TableModel, sequence_law
from specref.rules.chain import greedy, one_hot_ratio, ratio, token_matching
from specref.tree import TokenTree, laws_without_replacement


def test_chosen_tokens_have_no_laws() -> None:
    draft = Draft.chosen([1, 0])
    assert not draft.has_laws
    with pytest.raises(BadLaw, match="chosen, not drawn"):
        _ = draft.laws
    with pytest.raises(BadLaw, match="chosen, not drawn"):
        ratio([rational([1, 1])] * 3, draft, EnumeratedChance())


def test_an_empty_draft_is_a_normal_one() -> None:
    p = [rational([1, 3])]
    for rule in (ratio, token_matching, one_hot_ratio):
        for draft in (Draft.claimed([], []), Draft.chosen([])) if rule is not ratio else (Draft.claimed([], []),):
            law = exact_law(lambda chance, rule=rule, draft=draft: rule(p, draft, chance).next_token)
            assert law == {0: Fraction(1, 4), 1: Fraction(3, 4)}
    assert greedy(p, Draft.chosen([]), EnumeratedChance()).next_token == 1


@pytest.mark.parametrize(
    ("tokens", "laws", "error", "named"),
    [
        ([0, 1], [rational([1, 1])], ValueError, "2 tokens and 1 laws"),
        ([2], [rational([1, 1])], ValueError, "token 0 is 2, outside the vocabulary of 2"),
        ([-1], [rational([1, 1])], ValueError, "token 0 is -1"),
        ([0], [np.array([0.5, 0.4])], BadLaw, "drafted token 0 sums to 0.9"),
        ([0], [np.array([np.nan, 0.4])], BadLaw, "nan"),
    ],
)
def test_a_claim_must_state_laws(tokens, laws, error, named) -> None:
    with pytest.raises(error, match=named):
        Draft.claimed(tokens, laws)


def test_drawn_tokens_follow_the_model() -> None:
    model = TableModel(3, seed=4)
    law = exact_law(lambda chance: Draft.drawn(model.next_law, 3, chance).tokens)
    assert law == sequence_law(model, (), 3)


def test_a_kept_token_may_end_a_draft() -> None:
    model = TableModel(3, seed=4)
    drafts = exact_law(lambda chance: Draft.drawn(model.next_law, 3, chance, stop=lambda x, q: x == 0))
    assert sum(drafts.values()) == 1
    for draft in drafts:
        assert 0 not in draft.tokens[:-1]
        assert len(draft.tokens) == 3 or draft.tokens[-1] == 0
        assert all((law == model.next_law(draft.tokens[:i])).all() for i, law in enumerate(draft.laws))


@pytest.mark.parametrize("replacement", [True, False])
def test_each_node_keeps_the_law_it_was_drawn_from(replacement: bool) -> None:
    model = TableModel(3, seed=5, kind="zeros")
    parents = (-1, 0, 0, 1, 1)
    drafts = exact_law(lambda chance: Draft.drawn_tree(model.next_law, 9, parents, chance, replacement=replacement))
    assert sum(drafts.values()) == 1
    for draft, probability in drafts.items():
        tree = draft.tree
        assert tree is not None
        assert tree.tokens == draft.tokens
        rows = [model.next_law(tree.spells(node)) for node in range(len(tree))]
        stated = (
            [NO_LAW, *(rows[parent] for parent in tree.parents[1:])] if replacement else laws_without_replacement(tree, rows)
        )
        product = Fraction(1)
        for node in range(1, len(tree)):
            checked(draft.laws[node])
            assert (draft.laws[node] == stated[node]).all()
            product *= draft.laws[node][tree.tokens[node]]
        assert probability == product


def test_without_replacement_a_tree_may_come_out_smaller() -> None:
    certain = rational([0, 1, 0])
    draft = Draft.drawn_tree(lambda path: certain, 0, [-1, 0, 0, 2, 1], EnumeratedChance(), replacement=False)
    assert draft.tree is not None
    assert draft.tree.parents == (-1, 0, 1)  # node 2 could not be drawn, so node 3 below it is not there either


@settings(max_examples=50)
@given(strategies.drafted_trees())
def test_a_claimed_tree_keeps_its_laws(round) -> None:
    tree = round.draft.tree
    assert round.draft.laws[0] is NO_LAW
    assert len(round.p) == len(tree) == len(round.draft.laws)
    assert all(law[token] > 0 for law, token in zip(round.draft.laws[1:], tree.tokens[1:]))


def test_a_tree_needs_a_tree() -> None:
    tree = TokenTree([0, 1], [-1, 0])
    assert Draft.chosen(tree.tokens, tree).tree is tree


def test_a_negative_number_of_drafts_is_refused() -> None:
    with pytest.raises(ValueError, match="k is -1"):
        Draft.drawn(lambda so_far: rational([1, 1]), -1, SampledChance(0))
