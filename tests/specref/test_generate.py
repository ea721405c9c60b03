"""Generation in rounds: stops anywhere in a block, empty drafts, records that add up, and the same seed the same output."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from specref.chance import EnumeratedChance, SampledChance, exact_law
from specref.draft import Draft
from specref.generate import GreedyDrafter, ModelDrafter, NoDrafter, generate
from specref.laws import BadLaw
from specref.models import TableModel, sequence_law
from specref.proof import random_models
from specref.rules.block import block
from specref.rules.chain import greedy, one_hot_ratio, ratio, token_matching
from specref.stopping import Stops

RULES = (ratio, token_matching, one_hot_ratio, block)


def generated(target, drafter, rule, chance, k: int = 2, stops: Stops | None = None, prompt=()):
    return generate(target, drafter, rule, prompt, k=k, stops=stops or Stops(3), chance=chance)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stops", [Stops(3), Stops(4, eos=[1]), Stops(2), Stops(1)], ids=repr)
def test_whole_generations_have_the_targets_law(rule, stops: Stops) -> None:
    """Nothing merged: every branch of `generate` itself, k = 2, so stops fall on every slot of a block."""
    for family in range(5):
        target, drafter = random_models("whole", 2, family, memory=None)
        law = exact_law(
            lambda chance: generated(target, ModelDrafter(drafter), rule, chance, stops=stops, prompt=(1,)).tokens  # noqa: B023
        )
        assert law == sequence_law(target, (1,), stops.max_tokens, stops.eos)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_token_matching_is_plain_sampling_with_the_same_seed(k: int, seed: int) -> None:
    """Byte for byte, whatever is drafted; without a drafter generation *is* plain sampling."""
    target, drafter = random_models(f"bytes {seed}", 5, 0, memory=3, exact=False)
    chance = SampledChance(seed)
    plain: tuple[int, ...] = ()
    for position in range(100):
        chance.begin_round(position)
        plain += (chance.picks(target.next_law(plain), slot=("token", 0)),)
    for source in (ModelDrafter(drafter), GreedyDrafter(drafter), NoDrafter(), ModelDrafter(target)):
        out = generated(target, source, token_matching, SampledChance(seed), k=k, stops=Stops(100))
        assert bytes(out.tokens) == bytes(plain)


@pytest.mark.parametrize("rule", [*RULES, greedy])
def test_rounds_add_up_to_the_output(rule) -> None:
    target, drafter = random_models("rounds", 4, 0, exact=False, memory=2)
    for seed in range(20):
        out = generated(target, ModelDrafter(drafter), rule, SampledChance(seed), k=3, stops=Stops(20, eos=[3]))
        assert sum((one.emitted for one in out.rounds), ()) == out.tokens
        assert len(out.tokens) == 20 or out.tokens[-1] == 3
        assert 3 not in out.tokens[:-1]
        for one in out.rounds:
            assert one.start + len(one.drafted) + 1 <= 20
            assert one.accepted <= len(one.drafted)
            assert one.emitted[: one.accepted] == one.drafted[: len(one.emitted)][: one.accepted]
            assert one.rule == rule.__name__


def test_a_drafter_without_an_idea_makes_normal_rounds() -> None:
    class NowAndThen:
        def draft(self, context, k, chance):
            return Draft.chosen((0,) * (len(context) % 2))

    target = TableModel(3, 0)
    law = exact_law(lambda chance: generated(target, NowAndThen(), one_hot_ratio, chance).tokens)
    assert law == sequence_law(target, (), 3)
    out = generated(target, NoDrafter(), token_matching, SampledChance(0), stops=Stops(5))
    assert [one.drafted for one in out.rounds] == [()] * 5


def test_greedy_equals_plain_argmax() -> None:
    for family in range(45):
        target, drafter = random_models(f"greedy {family}", 2 + family % 3, family, memory=None)
        plain: tuple[int, ...] = ()
        while len(plain) < 6:
            plain += (int(target.next_law(plain).argmax()),)
        for source in (ModelDrafter(drafter), GreedyDrafter(drafter), GreedyDrafter(target)):
            for k in (1, 3):
                assert generated(target, source, greedy, SampledChance(family), k=k, stops=Stops(6)).tokens == plain


def test_a_draft_equal_to_the_target_is_always_kept() -> None:
    target = TableModel(3, 1, "zeros")
    out = generated(target, ModelDrafter(target), ratio, SampledChance(0), k=3, stops=Stops(12))
    assert [one.accepted for one in out.rounds] == [3, 3, 3]


class Gives:
    """A target that always answers the same rows."""

    vocabulary = 2

    def __init__(self, law, extra: int = 0) -> None:
        self.law, self.extra = law, extra

    def next_law(self, context):
        return self.law

    def next_laws(self, context, drafted):
        return [self.law] * (len(drafted) + 1 + self.extra)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"k": 0}, ValueError, "k is 0"),
        ({"k": -3}, ValueError, "k is -3"),
        ({"prompt": (7,)}, ValueError, "prompt token 7"),
        ({"target": Gives(np.array([0.5, np.nan]))}, BadLaw, "target's law after 0 drafts holds nan"),
        ({"target": Gives(np.array([0.5, 0.6]))}, BadLaw, "sums to 1.1"),
        ({"target": Gives(np.array([1.5, -0.5]))}, BadLaw, "-0.5"),
        ({"target": Gives(np.array([0.5, 0.5]), extra=1)}, ValueError, "one more is needed"),
    ],
)
def test_bad_input_is_named(arguments, error, named) -> None:
    given = {"target": TableModel(2, 0), "drafter": NoDrafter(), "rule": ratio, "chance": EnumeratedChance()} | arguments
    with pytest.raises(error, match=named):
        generated(**{**given, "drafter": given["drafter"]})


def test_a_drafter_must_keep_to_k() -> None:
    class Eager:
        def draft(self, context, k, chance):
            return Draft.chosen((0,) * 9)

    with pytest.raises(ValueError, match="proposed 9 tokens where at most 2"):
        generated(TableModel(2, 0), Eager(), one_hot_ratio, SampledChance(0), stops=Stops(9))


def test_a_draft_ended_by_its_last_tokens_probability() -> None:
    """Lawful, because the token is kept; dropping it instead is in test_rules_chain."""
    for family in range(5):
        target, drafter = random_models("dynamic", 3, family, memory=None)
        source = ModelDrafter(drafter, stop=lambda x, q: q[x] < Fraction(1, 3))
        law = exact_law(lambda chance: generated(target, source, ratio, chance).tokens)  # noqa: B023
        assert law == sequence_law(target, (), 3)
