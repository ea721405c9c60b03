from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specref.chance import SampledChance, exact_law_of_rounds
from specref.generate import ModelDrafter, NoDrafter, chain_round, generate
from specref.laws import total_variation
from specref.models import TableModel, sequence_law
from specref.processors import MinTokens, Processed
from specref.rules.chain import one_hot_ratio, ratio, token_matching
from specref.stopping import Stops

LENGTH = 5
TARGET = TableModel(3, "target")
SMALL = ModelDrafter(TableModel(3, "draft"))


def plain_law(model, stops):
    """Law of plain sampling under stops: every full-length output, cut at its first end."""
    law = Counter()
    for tokens, probability in sequence_law(model, (), stops.max_tokens).items():
        law[stops.cut((), tokens)] += probability
    return dict(law)


def speculative_law(target, drafter, rule, stops, k=2, cut=None):
    """Law of speculation; `cut(output, emitted)` may stand for another way of cutting what a round emits."""
    cut = cut or stops.cut

    def step(tokens, chance):
        chance.begin_round(len(tokens))
        *_, emitted = chain_round(tokens, target, drafter, rule, min(k, stops.room(tokens) - 1), chance)
        return tokens + cut(tokens, emitted)

    return exact_law_of_rounds(step, (), stops.finished)


CASES = {
    "eos": Stops(LENGTH, eos=[2]),
    "two eos": Stops(LENGTH, eos=[2, 1]),
    "sequence": Stops(LENGTH, sequences=[(0, 2)]),
    "sequences": Stops(LENGTH, sequences=[(0, 0, 1), (1, 1)]),
    "sequence after min tokens": Stops(LENGTH, sequences=[(1,)], min_tokens=3),
    "all": Stops(LENGTH, eos=[2], sequences=[(0, 1)], min_tokens=2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rule", [ratio, token_matching])
def test_stopped_speculation_is_stopped_plain_sampling(name, rule):
    target, small = TableModel(3, f"target {name}"), TableModel(3, f"draft {name}")
    assert speculative_law(target, ModelDrafter(small), rule, CASES[name]) == plain_law(target, CASES[name])


def test_min_tokens_masks_eos_until_exactly_then():
    target = Processed(TableModel(3, "min tokens"), [MinTokens(3, eos=(2,))], 0)
    stops = Stops(LENGTH, eos=[2], min_tokens=3)
    law = speculative_law(target, ModelDrafter(TableModel(3, "draft")), ratio, stops)
    assert law == plain_law(target, stops)
    ended = [tokens for tokens in law if tokens[-1] == 2]
    assert min(map(len, ended)) == 4  # three tokens without EOS, then EOS may come
    assert all(2 not in tokens[:3] for tokens in law)


@pytest.mark.parametrize("name", CASES)
def test_fault_a_stop_is_looked_for_in_the_last_slot_only(name):
    stops = CASES[name]
    wrong = speculative_law(TARGET, SMALL, ratio, stops, cut=lambda tokens, emitted: emitted[: stops.room(tokens)])
    assert total_variation(plain_law(TARGET, stops), wrong) > Fraction(1, 20)


def test_fault_only_the_first_of_several_eos_ids_counts():
    wrong = speculative_law(TARGET, SMALL, ratio, Stops(LENGTH, eos=[2]))
    assert total_variation(plain_law(TARGET, Stops(LENGTH, eos=[2, 1])), wrong) > Fraction(1, 10)


def test_fault_a_sequence_is_looked_for_within_one_round_only():
    stops = CASES["sequence"]

    def step(state, chance):
        tokens, _ = state
        chance.begin_round(len(tokens))
        *_, emitted = chain_round(tokens, TARGET, SMALL, ratio, min(2, stops.room(tokens) - 1), chance)
        alone = Stops(stops.room(tokens), sequences=stops.sequences)
        return tokens + alone.cut((), emitted), alone.finished(alone.cut((), emitted))

    states = exact_law_of_rounds(step, ((), False), lambda state: state[1], size=lambda state: len(state[0]))
    wrong = {tokens: probability for (tokens, _), probability in states.items()}
    assert total_variation(plain_law(TARGET, stops), wrong) > Fraction(1, 50)


def test_generation_ends_where_plain_sampling_ends_and_every_slot_is_met():
    """Token matching draws plain sampling's own tokens, so the outputs are equal, wherever in a round the end falls.

    The rarest ends, on the bonus, are 4 in 100 each: 700 outputs have none once in 1e11 runs.
    """
    dice = random.Random()
    ended_on = Counter()
    for _ in range(700):
        seed = dice.getrandbits(40)
        eos = dice.sample(range(5), dice.randint(0, 1))
        sequences = [tuple(dice.choices(range(5), k=dice.randint(1, 3))) for _ in range(dice.randint(0, 4))]
        longest = dice.randint(1, 12)
        stops = Stops(longest, eos=eos, sequences=sequences, min_tokens=dice.randint(0, min(3, longest)))
        target = TableModel(5, seed)
        small = TableModel(5, seed, "near", target=target)
        plain = generate(target, NoDrafter(), token_matching, (), k=1, stops=stops, chance=SampledChance(seed))
        out = generate(target, ModelDrafter(small), token_matching, (), k=3, stops=stops, chance=SampledChance(seed))
        assert out.tokens == plain.tokens, (seed, stops)
        assert [stops.finished(out.tokens[:n]) for n in range(1, len(out.tokens) + 1)] == [False] * (len(out.tokens) - 1) + [
            True
        ]
        assert sum((round.emitted for round in out.rounds), ()) == out.tokens
        last = out.rounds[-1]
        slot = len(last.emitted) - 1
        kind = "draft" if slot < last.accepted else "bonus" if last.accepted == len(last.drafted) else "residual"
        ended_on[kind, stops.reason(out.tokens)] += 1
    for kind in ("draft", "bonus", "residual"):
        assert ended_on[kind, "eos"] > 0
        assert ended_on[kind, "stop_sequence"] > 0


@pytest.mark.parametrize("rule", [ratio, token_matching, one_hot_ratio])
def test_without_drafts_every_rule_is_plain_sampling(rule):
    for stops in CASES.values():
        assert speculative_law(TARGET, NoDrafter(), rule, stops) == plain_law(TARGET, stops)


def test_a_sequence_may_begin_in_an_earlier_round_but_not_in_the_prompt():
    stops = Stops(9, sequences=[(1, 2, 3)])
    assert stops.cut((0, 1, 2), (3, 4)) == (3,)
    assert stops.cut((0, 1), (2, 3, 4)) == (2, 3)
    assert stops.cut((2,), (3, 4)) == (3, 4)


tokens_id = st.integers(0, 2)
tokens = st.lists(tokens_id, max_size=8).map(tuple)


@settings(max_examples=200, deadline=None)
@given(
    tokens,
    st.lists(st.integers(0, 8), max_size=3),
    st.sets(st.integers(0, 2), max_size=1),
    st.integers(1, 9),
    st.integers(0, 4),
)
def test_cutting_in_any_pieces_gives_the_same_end(whole, cuts, eos, longest, least):
    stops = Stops(longest, eos=sorted(eos), sequences=[(0, 1, 0), (2, 2)], min_tokens=min(least, longest))
    output = ()
    edges = [0, *sorted(cuts), len(whole)]
    for begin, end in pairwise(edges):
        if not stops.finished(output):
            output += stops.cut(output, whole[begin:end])
    assert output == stops.cut((), whole)


def test_reasons():
    stops = Stops(3, eos=[7], sequences=[(5, 6)], min_tokens=2)
    assert stops.reason(()) is None
    assert stops.reason((7,)) is None  # too early
    assert stops.reason((1, 7)) == "eos"
    assert stops.reason((5, 6)) == "stop_sequence"
    assert stops.reason((1, 5, 6)) == "stop_sequence"  # the length limit is reached too
    assert stops.reason((1, 2, 3)) == "length"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens is 4"),
        ({"max_tokens": 3, "min_tokens": -1}, "min_tokens is -1"),
        ({"max_tokens": 3, "sequences": [()]}, "no tokens"),
    ],
)
def test_bad_stops_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Stops(**settings)
