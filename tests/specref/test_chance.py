"""Chance in three kinds: slots, edges, keyed uniforms, and exact laws of honest and of faulty randomness."""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specref import strategies
from specref.chance import (
    BadWeights,
    Chance,
    EmptyWeights,
    EnumeratedChance,
    NumberLeavesRound,
    ReplayedChance,
    SampledChance,
    SlotReused,
    exact_law,
    exact_law_of_rounds,
)
from specref.draft import Draft
from specref.generate import ModelDrafter, chain_round
from specref.laws import rational, total_variation
from specref.models import TableModel, sequence_law
from specref.proof import law_of_generation
from specref.rules.chain import ratio
from specref.stopping import Stops

P, Q = rational([10, 60, 25, 5]), rational([30, 35, 10, 25])
EVERY_KIND = [SampledChance(0), ReplayedChance({("accept", 0): 0.5, ("emit",): 0.5}), EnumeratedChance()]


def first_token(chance: Chance) -> int:
    """The first token of a round of the ratio rule on P and Q."""
    draft = Draft.drawn(lambda _: Q, 1, chance)
    verified = ratio([P, P], draft, chance)
    return (*draft.tokens[: verified.accepted], verified.next_token)[0]


@pytest.mark.parametrize("chance", EVERY_KIND, ids=lambda chance: type(chance).__name__)
def test_a_slot_used_twice_raises(chance: Chance) -> None:
    chance.begin_round(0)
    chance.accepts(1, 2, slot=("accept", 0))
    with pytest.raises(SlotReused, match=r"\('accept', 0\).*starts at 0"):
        chance.accepts(1, 2, slot=("accept", 0))
    with pytest.raises(SlotReused):
        chance.picks([1, 1], slot=("accept", 0))
    chance.begin_round(0)  # a new round asks anew
    chance.accepts(1, 2, slot=("accept", 0))


@pytest.mark.parametrize("chance", EVERY_KIND, ids=lambda chance: type(chance).__name__)
@pytest.mark.parametrize("weights", [[], [0, 0], [0.0, 0.0], np.zeros(3), rational([1]) * 0])
def test_nothing_to_pick_from_raises(chance: Chance, weights: list[float]) -> None:
    chance.begin_round(0)
    with pytest.raises(EmptyWeights, match="emit"):
        chance.picks(weights, slot=("emit",))


@pytest.mark.parametrize("chance", EVERY_KIND, ids=lambda chance: type(chance).__name__)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.25])
def test_weights_that_are_no_weights_raise(chance: Chance, bad: float) -> None:
    for weights in ([0.5, bad, 0.25], np.array([0.5, bad, 0.25])):
        chance.begin_round(0)
        with pytest.raises(BadWeights, match=str(bad)):
            chance.picks(weights, slot=("emit",))
    for numerator, denominator in ((bad, 1), (1, bad)):
        chance.begin_round(0)
        with pytest.raises(BadWeights, match=str(bad)):
            chance.accepts(numerator, denominator, slot=("accept", 0))


@pytest.mark.parametrize(
    "chance",
    [SampledChance(0), ReplayedChance({("accept", 0): 0.0}), ReplayedChance({("accept", 0): 1 - 2**-53}), EnumeratedChance()],
)
def test_zeros_are_decided_without_dividing(chance: Chance) -> None:
    for numerator, denominator, accepted in ((0, 0, False), (0, 1, False), (1, 0, True), (1, 1, True), (3, 2, True)):
        chance.begin_round(0)
        assert chance.accepts(numerator, denominator, slot=("accept", 0)) is accepted


def test_replay_decides_as_stated() -> None:
    def picked(u: float, weights: list[float]) -> int:
        return ReplayedChance({("emit",): u}).picks(weights, slot=("emit",))

    assert [picked(u, [0.0, 0.5, 0.0, 0.5, 0.0]) for u in (0.0, 0.49, 0.5, 0.99, 1 - 2**-53)] == [1, 1, 3, 3, 3]
    assert ReplayedChance({("accept", 0): 0.5}).accepts(0.5, slot=("accept", 0)) is False  # strictly below
    assert ReplayedChance({("accept", 0): 0.5 - 2**-53}).accepts(0.5, slot=("accept", 0)) is True


def test_a_total_too_small_to_scale_still_picks_a_token_of_positive_weight() -> None:
    smallest = 5e-324
    assert ReplayedChance({("emit",): 1 - 2**-53}).picks([0.0, smallest, 0.0], slot=("emit",)) == 1


def test_replay_covers_the_slots_it_was_given() -> None:
    chance = ReplayedChance({("accept", 0): 0.5})
    with pytest.raises(KeyError, match="emit"):
        chance.picks([1], slot=("emit",))
    for outside in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=rf"\('emit',\) is {outside}"):
            ReplayedChance({("emit",): outside})


@given(weights=strategies.laws(4, exact=False), u=st.integers(0, 2**53 - 1).map(lambda i: i * 2.0**-53))
def test_a_token_without_weight_is_never_picked(weights: np.ndarray, u: float) -> None:
    assert weights[ReplayedChance({("emit",): u}).picks(weights, slot=("emit",))] > 0


@given(weights=strategies.laws(4), numerator=st.integers(0, 5), denominator=st.integers(0, 5))
def test_enumeration_gives_the_stated_probabilities(weights: np.ndarray, numerator: int, denominator: int) -> None:
    law = exact_law(lambda chance: chance.picks(weights, slot=("emit",)))
    assert law == {token: weight for token, weight in enumerate(weights) if weight}
    accepted = exact_law(lambda chance: chance.accepts(numerator, denominator, slot=("accept", 0))).get(True, 0)
    assert accepted == (min(Fraction(numerator, denominator), 1) if denominator else numerator > 0)


def test_numbers_are_named_by_the_round_and_tokens_by_position() -> None:
    chance = SampledChance(0)
    chance.begin_round(5)
    assert chance.number(("accept", 1)) == (5, "accept", 1)
    assert chance.number(("emit",)) == (5, "emit")
    assert chance.number(("token", 2)) == ("token", 7)


def test_sampled_uniforms_depend_on_seed_and_number_alone() -> None:
    one, other = SampledChance(3), SampledChance(3)
    numbers = [(start, "accept", i) for start in range(20) for i in range(20)]
    assert [one.uniform(n) for n in numbers] == [other.uniform(n) for n in reversed(numbers)][::-1]
    assert SampledChance(4).uniform(numbers[0]) != one.uniform(numbers[0])


def test_sampled_uniforms_are_uniform() -> None:
    """Kolmogorov-Smirnov on 20,000 numbers of a fresh seed: false-fail rate 1e-9; finds a CDF that is off by more than .025."""
    seed = secrets.randbits(64)
    uniforms = [SampledChance(seed).uniform((start, "accept", 0)) for start in range(20_000)]
    assert all(0 <= u < 1 and (u * 2**53).is_integer() for u in uniforms)
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-9, f"seed {seed}"


class SharedCoin(EnumeratedChance):
    """The residual is drawn with the number that the draft was rejected by."""

    def number(self, slot):
        return super().number(("accept", 0) if slot == ("emit",) else slot)


class OneNumberPerChain(EnumeratedChance):
    """Every acceptance of a round reads one number."""

    def number(self, slot):
        return super().number(("accept", 0) if slot[0] == "accept" else slot)


class NoiseReused(EnumeratedChance):
    """Every round reads the numbers of the first."""

    def number(self, slot):
        return slot


def test_exact_law_of_a_shared_coin() -> None:
    assert total_variation(exact_law(first_token), dict(enumerate(P))) == 0
    assert total_variation(exact_law(first_token, SharedCoin), dict(enumerate(P))) == Fraction(9, 160)


TARGET, DRAFTER = TableModel(3, "target", "plain"), TableModel(3, "draft", "plain")


def generation_step(tokens, chance, k: int = 1, limit: int = 3):
    chance.begin_round(len(tokens))
    emitted = chain_round(tokens, TARGET, ModelDrafter(DRAFTER), ratio, min(k, limit - len(tokens) - 1), chance)[2]
    return tokens + emitted[: limit - len(tokens)]


def unmerged(chance_type, k: int = 1, limit: int = 3):
    def whole(chance):
        tokens = ()
        while len(tokens) < limit:
            tokens = generation_step(tokens, chance, k, limit)
        return tokens

    return exact_law(whole, chance_type)


def test_noise_reused_over_rounds_cannot_be_merged_and_is_biased() -> None:
    with pytest.raises(NumberLeavesRound, match="exact_law"):
        exact_law_of_rounds(generation_step, (), lambda tokens: len(tokens) == 3, chance_type=NoiseReused)
    wanted = sequence_law(TARGET, (), 3)
    assert unmerged(EnumeratedChance) == wanted
    assert total_variation(unmerged(NoiseReused), wanted) > Fraction(1, 20)


def test_size_of_noise_reused_on_a_fair_coin() -> None:
    """p = q = (1/2, 1/2), k = 1: the third token repeats the first, so half of the outputs never come: 1/2."""

    def three_tokens(chance):
        tokens = ()
        while len(tokens) < 3:
            chance.begin_round(len(tokens))
            draft = Draft.drawn(lambda _: rational([1, 1]), 1, chance)
            verified = ratio([rational([1, 1])] * 2, draft, chance)
            tokens += (*draft.tokens[: verified.accepted], verified.next_token)
        return tokens[:3]

    honest = exact_law(three_tokens)
    assert set(honest.values()) == {Fraction(1, 8)}
    assert total_variation(exact_law(three_tokens, NoiseReused), honest) == Fraction(1, 2)


def test_one_number_for_a_chain_is_biased_and_may_be_merged() -> None:
    def one_round(context, room, chance):
        return chain_round(context, TARGET, ModelDrafter(DRAFTER), ratio, min(2, room - 1), chance)[2]

    law = law_of_generation(one_round, Stops(3), chance_type=OneNumberPerChain)
    assert law == unmerged(OneNumberPerChain, k=2)
    assert total_variation(law, sequence_law(TARGET, (), 3)) > Fraction(1, 100)


def test_a_round_that_emits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must emit a token"):
        exact_law_of_rounds(lambda tokens, chance: tokens, (), lambda tokens: False)


def test_a_token_number_beyond_the_round_is_refused() -> None:
    def peeks(tokens, chance):
        chance.begin_round(len(tokens))
        chance.picks([1, 1], slot=("token", 1))  # a position that the next round will draw
        return (*tokens, chance.picks([1, 1], slot=("token", 0)))

    with pytest.raises(NumberLeavesRound):
        exact_law_of_rounds(peeks, (), lambda tokens: len(tokens) == 2)


def test_a_number_read_three_times_keeps_what_every_decision_left() -> None:
    """u < 1/2, then u < 1/4, then u < 3/8, all of one number: the third is certain where the second said yes."""

    class OneNumber(EnumeratedChance):
        def number(self, slot):
            return "the only one"

    def thrice(chance):
        return tuple(chance.accepts(n, 8, slot=("accept", n)) for n in (4, 2, 3))

    assert exact_law(thrice, OneNumber) == {
        (True, True, True): Fraction(1, 4),
        (True, False, True): Fraction(1, 8),
        (True, False, False): Fraction(1, 8),
        (False, False, False): Fraction(1, 2),
    }
