"""The strategies give what they promise, the awkward cases among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from specref import strategies
from specref.chance import SampledChance, exact_law
from specref.laws import checked, overlap
from specref.rules.block import block
from specref.rules.chain import ratio
from specref.rules.tree import recursive_rejection, traversal


@given(st.booleans(), st.data())
def test_laws_are_laws(exact: bool, data: st.DataObject) -> None:
    law = checked(data.draw(strategies.laws(5, exact=exact)))
    assert (law.dtype == object) is exact


@pytest.mark.parametrize(
    "wanted",
    [
        lambda p, q: (p == q).all(),
        lambda p, q: overlap(p, q) == 0,
        lambda p, q: 0 < overlap(p, q) < 1,
        lambda p, q: p.max() == 1 and q.max() < 1,
        lambda p, q: (p == 0).any() and (q > 0).all(),
        lambda p, q: p[0] == p[1] == p[2],
    ],
)
def test_the_awkward_pairs_are_found(wanted) -> None:
    find(strategies.pairs(3), lambda pair: wanted(*pair))


@settings(max_examples=50)
@given(strategies.trees(3, distinct_siblings=True))
def test_siblings_are_distinct_where_asked(tree) -> None:
    for node in range(len(tree)):
        tokens = [tree.tokens[child] for child in tree.children(node)]
        assert len(set(tokens)) == len(tokens)


def test_siblings_may_repeat_otherwise() -> None:
    find(strategies.trees(3), lambda tree: len({tree.tokens[child] for child in tree.children(0)}) < len(tree.children(0)))
    with pytest.raises(NoSuchExample):
        find(
            strategies.trees(2, distinct_siblings=True),
            lambda tree: len(tree.children(0)) > 2,
            settings=settings(max_examples=200),
        )


@settings(max_examples=50)
@given(strategies.model_pairs(3))
def test_models_and_their_drafts(pair) -> None:
    target, drafter = pair
    for context in ((), (1,), (2, 0)):
        checked(target.next_law(context))
        checked(drafter.next_law(context))


@settings(max_examples=30)
@given(strategies.drafted_rounds(), strategies.drafted_trees(max_nodes=4))
def test_rules_take_what_is_drafted(chain, tree) -> None:
    for rule in (ratio, block):
        assert sum(exact_law(lambda chance, rule=rule: rule(chain.p, chain.draft, chance)).values()) == 1
    for rule in (recursive_rejection, traversal):
        assert sum(exact_law(lambda chance, rule=rule: rule(tree.p, tree.draft, chance)).values()) == 1


@settings(max_examples=30)
@given(strategies.drafted_rounds(exact=False), strategies.drafted_trees(exact=False))
def test_floats_are_floats(chain, tree) -> None:
    for row in (*chain.p, *tree.p):
        assert row.dtype == np.float64
    ratio(chain.p, chain.draft, SampledChance(0))
    traversal(tree.p, tree.draft, SampledChance(0))
