from __future__ import annotations

import random

import pytest
import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from specref.chance import EnumeratedChance, SampledChance, exact_law_of_rounds
from specref.drafters.prompt_lookup import PromptLookup
from specref.generate import chain_round
from specref.laws import BadLaw
from specref.models import TableModel, sequence_law
from specref.rules.chain import one_hot_ratio, ratio, token_matching
from specref.stopping import Stops

NO_CHANCE = EnumeratedChance()


def test_finds_what_transformers_finds():
    dice = random.Random()
    found = 0
    for _ in range(300):
        context = tuple(dice.choices(range(dice.randint(2, 6)), k=dice.randint(2, 20)))
        longest, k = dice.randint(1, 3), dice.randint(1, 6)
        theirs = PromptLookupCandidateGenerator(num_output_tokens=k, max_matching_ngram_size=longest, max_length=99)
        candidates, _ = theirs.get_candidates(torch.tensor([context]))
        expected = tuple(candidates[0, len(context) :].tolist())
        assert PromptLookup(longest).draft(context, k, NO_CHANCE).tokens == expected, (context, longest, k)
        found += bool(expected)
    assert found > 100


@pytest.mark.parametrize(
    ("context", "drafter", "k", "expected"),
    [
        ((1, 2, 3, 1, 2, 4, 1, 2), PromptLookup(2), 2, (3, 1)),
        ((1, 2, 3, 1, 2, 4, 1, 2), PromptLookup(2, take="rightmost"), 2, (4, 1)),
        ((5, 2, 3, 1, 2), PromptLookup(2), 9, (3, 1, 2)),  # no pair: one token will do; and the text ends before k
        ((5, 2, 3, 1, 2), PromptLookup(2, shortest=2), 9, ()),
        ((7, 7, 7), PromptLookup(2), 3, (7,)),  # the occurrence overlaps the ending
        ((1, 2, 3), PromptLookup(3), 3, ()),
        ((1,), PromptLookup(3), 3, ()),
        ((), PromptLookup(3), 3, ()),
        ((1, 1), PromptLookup(1), 0, ()),
    ],
)
def test_matches(context, drafter, k, expected):
    assert drafter.draft(context, k, NO_CHANCE).tokens == expected


@pytest.mark.parametrize("rule", [one_hot_ratio, token_matching])
@pytest.mark.parametrize("drafter", [PromptLookup(2), PromptLookup(2, take="rightmost"), PromptLookup(1)])
def test_lossless_over_several_rounds(rule, drafter):
    prompt, stops = (0, 1, 2, 0, 1), Stops(4)
    for seed in range(3):
        target = TableModel(3, seed, "zeros")
        drafted = []

        def step(tokens, chance, target=target, drafted=drafted):
            chance.begin_round(len(tokens))
            context, room = prompt + tokens, min(3, stops.room(tokens) - 1)
            draft, _, emitted = chain_round(context, target, drafter, rule, room, chance)
            drafted.append(len(draft.tokens))
            return tokens + stops.cut(tokens, emitted)

        assert exact_law_of_rounds(step, (), stops.finished) == sequence_law(target, prompt, 4)
        assert max(drafted) >= 2


def test_the_ratio_rule_refuses_matches():
    target = TableModel(3, 0)
    with pytest.raises(BadLaw, match="chosen, not drawn"):
        chain_round((0, 1, 0), target, PromptLookup(1), ratio, 2, SampledChance(0))


def test_bad_settings():
    with pytest.raises(ValueError, match="n-grams of 0 to 3"):
        PromptLookup(3, shortest=0)
    with pytest.raises(ValueError, match="n-grams of 3 to 2"):
        PromptLookup(2, shortest=3)
    with pytest.raises(ValueError, match="take is 'last'"):
        PromptLookup(2, take="last")
