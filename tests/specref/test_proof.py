"""The prover itself: its laws, its verdicts, its counterexamples; and that it convicts what is wrong and nothing else."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specref.chance import EnumeratedChance, NumberLeavesRound, exact_law
from specref.draft import Draft
from specref.generate import ModelDrafter, chain_round
from specref.laws import without
from specref.models import TableModel, sequence_law
from specref.proof import (
    SUBJECTS,
    PlainGreedy,
    RowsModel,
    Subject,
    chain_instances,
    departure,
    every_context,
    law_in_two_stages,
    law_of_generation,
    law_of_repeated_rounds,
    law_of_round,
    lossless_round,
    prove_all,
    random_models,
    smallest_counterexample,
    tree_instances,
    variation_of_round,
)
from specref.proof.instances import DRAFT_KINDS, TARGET_KINDS, TREES
from specref.proof.prove import MODELS, Piece, prove_piece
from specref.proof.subjects import drawn_chain, every_chain, tree_without_replacement
from specref.rules import Verified, rewired
from specref.rules.chain import ratio, token_matching
from specref.rules.tree import recursive_rejection
from specref.stopping import Stops


def round_of(target, drafter, rule, k: int):
    def one_round(context, room, chance):
        return chain_round(context, target, ModelDrafter(drafter), rule, min(k, room - 1), chance)[2]

    return one_round


RESAMPLE_FROM_P = rewired(ratio, residual=lambda p, q: p)
FAULT = Subject("resample from p", "chain", RESAMPLE_FROM_P, drawn_chain)


def test_a_short_proof_of_everything() -> None:
    """`specref prove` in short; the full run is the same with scale 1."""
    calls = []
    results = prove_all(lambda *call: calls.append(call), scale=0.02, workers=1)
    assert [result.rule for result in results] == [one.name for one in SUBJECTS]
    for result in results:
        assert result.as_claimed, result.counterexample
        assert result.equal == (result.claim == "lossless"), result.rule
        assert result.models == (5 if result.kind == "chain" else 2)
        assert result.generations >= result.models
        assert result.rounds >= result.models * 3
    assert [done for _, done, _ in calls] == list(range(1, calls[0][2] + 1))


@pytest.mark.long
def test_the_whole_proof() -> None:
    results = prove_all(seed=1, workers=2)
    for result in results:
        assert result.as_claimed, result.counterexample
        assert result.models == MODELS[result.kind]


def test_two_processes_find_what_one_finds() -> None:
    one, two = (prove_all(scale=0.01, workers=workers, subjects=SUBJECTS[:2]) for workers in (1, 2))
    for mine, theirs in zip(one, two):
        mine.seconds = theirs.seconds = 0.0
        assert mine == theirs


def test_the_promised_numbers_of_models() -> None:
    assert MODELS["chain"] >= 200
    assert MODELS["tree"] >= 60
    instances = list(chain_instances(MODELS["chain"]))
    assert {(one.target.vocabulary, one.k) for one in instances} == {(V, k) for V in (2, 3, 4) for k in (1, 2, 3)}
    assert {one.target.kind for one in instances} == set(TARGET_KINDS)
    assert {one.drafter.kind for one in instances} == set(DRAFT_KINDS)
    trees = list(tree_instances(MODELS["tree"]))
    assert {one.shape for one in trees} == set(TREES.values())
    assert max(len(one.shape) for one in trees) == 7
    assert {one.target.kind for one in trees} == set(TARGET_KINDS)
    assert {one.drafter.kind for one in trees} == set(DRAFT_KINDS)


def test_every_model_is_counted_once_over_the_pieces() -> None:
    parts = [prove_piece(Piece("ratio", 0, 10, first, 4)) for first in range(4)]
    assert [part.models for part in parts] == [3, 3, 2, 2]
    assert sum(part.generations for part in parts) == 10


# One round and whole generations say the same.


@pytest.mark.parametrize("rule", [ratio, token_matching, RESAMPLE_FROM_P], ids=lambda rule: rule.__name__)
def test_one_round_after_every_context_decides_as_generations_do(rule) -> None:
    """On models that remember one token: lossless after every context and at every room, or biased in some generation."""
    for family in range(12):
        target, drafter = random_models("agree", 2 + family % 2, family)
        one_round = round_of(target, drafter, rule, 2)
        after_every_context = lossless_round(one_round, target, every_context(target))
        law = law_of_generation(one_round, Stops(4))
        assert after_every_context == (law == sequence_law(target, (), 4))


def test_two_stages_and_one_give_the_same_law() -> None:
    for instance in tree_instances(4, "stages"):
        [draw] = tree_without_replacement(instance, (), 9)

        def at_once(chance, instance=instance, draw=draw):
            draft = draw(chance)
            p = [instance.target.next_law(draft.tree.spells(node)) for node in range(len(draft.tree))]
            verdict = recursive_rejection(p, draft, chance)
            return (*(draft.tokens[node] for node in verdict.path), verdict.next_token)

        assert exact_law(at_once) == law_in_two_stages(draw, instance.target, (), recursive_rejection)


def test_repeated_rounds_are_the_generation() -> None:
    target, drafter = random_models("repeat", 3, 0)
    one_round = round_of(target, drafter, ratio, 2)
    for stops in (Stops(4), Stops(4, eos=[0]), Stops(2)):

        def unlimited(context, room, chance):
            return one_round(context, 99, chance)

        repeated = law_of_repeated_rounds(lambda context: law_of_round(one_round, context), stops, prompt=(1,))
        assert repeated == law_of_generation(unlimited, stops, prompt=(1,))
        assert repeated == sequence_law(target, (1,), stops.max_tokens, stops.eos)


@settings(max_examples=40)
@given(st.integers(0, 44), st.integers(1, 2))
def test_the_local_test_is_the_completed_law(family: int, k: int) -> None:
    """`departure` is None exactly if the round completed by the target has total variation 0."""
    target, drafter = random_models(f"local {family}", 3, family)
    for rule in (ratio, RESAMPLE_FROM_P):
        law = law_of_round(round_of(target, drafter, rule, k))
        assert (departure(law, target) is None) == (variation_of_round(law, target) == 0)


def test_departure_states_the_conditional_law() -> None:
    target = RowsModel(2, {(): (1, 1), (0,): (1, 3)})
    law = {(1,): Fraction(1, 2), (0,): Fraction(1, 4), (0, 1): Fraction(1, 4)}
    found = departure(law, target)
    assert (found.prefix, found.token, found.got, found.wanted) == ((0,), 0, 0, Fraction(1, 4))


@pytest.mark.parametrize("law", [{(): Fraction(1)}, {(0,): Fraction(1, 2)}, {(): Fraction(1, 2), (0,): Fraction(1, 2)}])
def test_a_round_that_emits_nothing_has_no_law(law) -> None:
    with pytest.raises(ValueError, match="emits a token or more"):
        departure(law, TableModel(2, 0))


# Counterexamples.


def test_the_smallest_counterexample_can_be_checked_by_hand() -> None:
    [result] = prove_all(scale=0.1, workers=1, subjects=[FAULT])
    found = result.counterexample
    assert found is not None
    assert found.instance.shape == (-1, 0)
    assert found.instance.V == 2
    assert max(max(row) for rows in (found.instance.target, found.instance.drafter) for row in rows.values()) <= 2
    target = RowsModel(2, found.instance.target)
    again = law_in_two_stages(
        lambda chance: Draft.drawn(RowsModel(2, found.instance.drafter).next_law, 1, chance), target, (), RESAMPLE_FROM_P
    )
    assert again == found.law
    assert departure(again, target) == found.departure
    text = str(found)
    assert "target after ()" in text
    assert "draft  after ()" in text
    assert str(found.departure) in text
    assert pickle.loads(pickle.dumps(found)) == found  # it comes back from another process


def test_what_follows_the_target_has_no_counterexample() -> None:
    honest = Subject("ratio", "chain", ratio, drawn_chain)
    assert all(smallest_counterexample(honest, instance) is None for instance in chain_instances(9))


def test_a_rule_that_raises_is_a_counterexample() -> None:
    def divides(p, draft, chance):
        for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
            if not chance.accepts(p[i][x] / q[0], slot=("accept", i)):
                return Verified(i, chance.picks(p[i], slot=("emit",)))
        return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))

    [result] = prove_all(scale=0.2, workers=1, subjects=[Subject("divides by q(0)", "chain", divides, drawn_chain)])
    assert not result.as_claimed
    assert result.total_variation == 1
    assert result.counterexample is not None


def test_a_slot_used_twice_is_a_counterexample() -> None:
    def one_slot(p, draft, chance):
        for i, x in enumerate(draft.tokens):
            if not chance.accepts(p[i][x], slot=("accept", 0)):
                return Verified(i, chance.picks(without(p[i], x), slot=("emit",)))
        return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))

    [result] = prove_all(scale=0.2, workers=1, subjects=[Subject("one slot for all", "chain", one_slot, every_chain)])
    assert not result.as_claimed
    assert "the rule raises SlotReused: slot ('accept', 0) was asked for twice" in str(result.counterexample)


def test_a_chosen_draft_is_shown_in_its_counterexample() -> None:
    def keeps_all(p, draft, chance):
        return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))

    [result] = prove_all(scale=0.05, workers=1, subjects=[Subject("keeps all", "chain", keeps_all, every_chain)])
    assert result.counterexample is not None
    assert result.counterexample.chosen in ((0,), (1,))
    assert "drafted tokens, chosen" in str(result.counterexample)


# Models.


def test_plain_greedy_is_certain() -> None:
    model = TableModel(3, 0, "ties")
    for context in every_context(model, 2):
        law = PlainGreedy(model).next_law(context)
        assert sorted(law) == [0, 0, 1]
        assert law[int(model.next_law(context).argmax())] == 1


def test_contexts_of_a_longer_memory() -> None:
    assert len(every_context(TableModel(3, 0), memory=2)) == 1 + 3 + 9


def test_numbers_shared_over_rounds_are_refused_not_merged() -> None:
    class NoiseReused(EnumeratedChance):
        def number(self, slot):
            return slot

    target, drafter = random_models("shared", 2, 1)
    with pytest.raises(NumberLeavesRound):
        law_of_generation(round_of(target, drafter, ratio, 1), Stops(3), chance_type=NoiseReused)
