"""Jacobi and lookahead decoding as drafters: they draft what their own loops find."""

from __future__ import annotations

import pytest

from specref.chance import SampledChance
from specref.drafters import lookahead
from specref.drafters.jacobi import JacobiDrafter
from specref.drafters.lookahead import LookaheadDrafter, Shape
from specref.generate import generate
from specref.models import TableModel
from specref.rules import Rule, chain, tree
from specref.stopping import Stops
from specref.tree_generate import generate_with_trees


@pytest.mark.parametrize("rule", [tree.sequential_one_hot, tree.greedy])
@pytest.mark.parametrize("shape", [Shape(W=2, N=3, G=2), Shape(W=1, N=2, G=1), Shape(W=3, N=4, G=3)])
def test_lookahead_drafts_round_by_round_what_its_own_loop_guesses(rule: Rule, shape: Shape) -> None:
    drafted = 0
    for seed in range(20):
        target, prompt = TableModel(3, seed, memory=2, exact=False), (1, 0, 2, 1)
        stops = Stops(16)
        drafter = LookaheadDrafter(target, shape)
        chance = SampledChance(seed)
        made = generate_with_trees(target, drafter, rule, prompt, depth=shape.levels, stops=stops, chance=chance)
        assert made == lookahead.generate(target, rule, prompt, shape=shape, stops=stops, chance=SampledChance(seed))
        drafted += sum(len(one.drafted) for one in made.rounds)
    assert drafted > 100


def test_lookahead_answers_the_same_after_the_same_context() -> None:
    target, chance = TableModel(3, 5, memory=2, exact=False), SampledChance(0)
    once, twice = (LookaheadDrafter(target, Shape(W=2, N=3, G=2)) for _ in range(2))
    text = (1, 0, 2, 1)
    for token in (0, 1, 1, 2, 0, 1, 2):
        chance.begin_round(0)
        expected = once.draft(text, 2, chance)
        for _ in range(2):
            chance.begin_round(0)
            again = twice.draft(text, 2, chance)
            assert again.tree is not None
            assert expected.tree is not None
            assert (again.tokens, again.tree.parents) == (expected.tokens, expected.tree.parents)
        text += (token,)


def test_jacobi_drafts_more_of_the_greedy_text_with_each_pass() -> None:
    target, stops = TableModel(4, "jacobi", exact=False), Stops(24)
    accepted = []
    for passes in (1, 2, 4):
        drafter = JacobiDrafter(target, passes)
        made = generate(target, drafter, chain.greedy, (1, 2), k=4, stops=stops, chance=SampledChance(0))
        accepted.append(sum(one.accepted for one in made.rounds) / sum(len(one.drafted) for one in made.rounds))
    assert accepted == sorted(accepted)
    assert accepted[-1] == 1.0
    with pytest.raises(ValueError, match="passes is 0"):
        JacobiDrafter(target, 0)
