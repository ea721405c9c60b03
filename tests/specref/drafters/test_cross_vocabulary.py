from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast

from specref.chance import SampledChance, exact_law_of_rounds
from specref.draft import Draft
from specref.drafters.cross_vocabulary import HubCodec, PieceCodec, Reencoded, SharedVocabulary, shared_tokens
from specref.generate import GreedyDrafter, ModelDrafter, NoDrafter, chain_round, generate
from specref.laws import overlap, total, total_variation
from specref.models import TableModel, sequence_law
from specref.rules.chain import one_hot_ratio, ratio, token_matching
from specref.stopping import Stops

TARGET, OTHER = PieceCodec(["a", "b", "ab"]), PieceCodec(["b", "ba", "a", "aa"])
SHARED = shared_tokens(TARGET.pieces, OTHER.pieces)
PROMPT, LENGTH = (0, 1), 3


def speculative_law(target, drafter, rule, k=2):
    stops = Stops(LENGTH)

    def step(tokens, chance):
        chance.begin_round(len(tokens))
        *_, emitted = chain_round(PROMPT + tokens, target, drafter, rule, min(k, stops.room(tokens) - 1), chance)
        return tokens + stops.cut(tokens, emitted)

    return exact_law_of_rounds(step, (), stops.finished)


@pytest.mark.parametrize("rule", [one_hot_ratio, token_matching])
@pytest.mark.parametrize("inner", [ModelDrafter, GreedyDrafter])
def test_reencoded_drafts_are_lossless(rule, inner):
    for seed in range(4):
        target, model = TableModel(3, seed, "zeros"), TableModel(4, f"other {seed}")
        law = speculative_law(target, Reencoded(inner(model), TARGET, OTHER), rule)
        assert law == sequence_law(target, PROMPT, LENGTH)


@pytest.mark.parametrize("kind", ["plain", "zeros", "one_hot"])
def test_the_shared_vocabulary_is_lossless_under_the_ratio_rule(kind):
    for seed in range(4):
        target, model = TableModel(3, seed, "zeros"), TableModel(4, f"other {seed}", kind)
        shared = SharedVocabulary(model, TARGET, OTHER, SHARED, 3)
        assert speculative_law(target, ModelDrafter(shared), ratio) == sequence_law(target, PROMPT, LENGTH)


def test_acceptance_is_at_most_the_targets_mass_on_shared_tokens():
    for seed in range(20):
        target, model = TableModel(3, seed), TableModel(4, f"other {seed}")
        q = SharedVocabulary(model, TARGET, OTHER, SHARED, 3).next_law(PROMPT)
        p = target.next_law(PROMPT)
        assert overlap(p, q) <= sum(p[ours] for ours in SHARED.values()) < 1
        assert q[TARGET.pieces.index("ab")] == 0
        assert total(q) == 1


class RawLaw(ModelDrafter):
    """The fault: tokens drawn over the shared vocabulary, and the law before the restriction handed over."""

    def draft(self, context, k, chance):
        honest = super().draft(context, k, chance)
        raw = []
        for i in range(len(honest.tokens)):
            theirs = self.model.model.next_law(OTHER.encode(TARGET.decode(context + honest.tokens[:i])))
            law = honest.laws[i] * 0
            for their_token, our_token in SHARED.items():
                law[our_token] = theirs[their_token]
            raw.append(law)
        return Draft(honest.tokens, raw, None)


def test_fault_the_law_is_not_renormalised():
    target, model = TableModel(3, "target"), TableModel(4, "draft")
    wrong = speculative_law(target, RawLaw(SharedVocabulary(model, TARGET, OTHER, SHARED, 3)), ratio)
    assert total_variation(wrong, sequence_law(target, PROMPT, LENGTH)) > Fraction(1, 50)


def test_where_no_shared_token_has_weight_the_law_is_uniform_over_them():
    certain_of_ba = TableModel(4, 0)
    certain_of_ba.next_law = lambda context: np.array([0.0, 1.0, 0.0, 0.0])
    law = SharedVocabulary(certain_of_ba, TARGET, OTHER, SHARED, 3).next_law(PROMPT)
    assert law.tolist() == [0.5, 0.5, 0]


def test_committed_tokens_are_never_merged_with_proposals():
    # The text "a" + "b" would be one token "ab" if it were encoded whole; the committed "a" stays, so "b" is proposed.
    model = TableModel(4, 0, "one_hot")
    model.next_law = lambda context: np.array([1.0, 0.0, 0.0, 0.0])  # always "b"
    draft = Reencoded(GreedyDrafter(model), TARGET, OTHER).draft((0,), 2, SampledChance(0))
    assert draft.tokens == (1, 1)
    assert not draft.has_laws


TEXTS = ["the cat sat on the mat", "a cat and a hat", "the hat on the cat"] * 4


def tokenizer(size):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), ByteLevel()
    bpe.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=size, special_tokens=["<s>"], show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>")


def test_with_tokenizers_of_transformers():
    ours, theirs = HubCodec(tokenizer(40)), HubCodec(tokenizer(24))
    shared = shared_tokens(ours.pieces, theirs.pieces)
    assert all(ours.pieces[mine] == theirs.pieces[other] for other, mine in shared.items())
    assert len(set(shared.values())) == len(shared) > 15
    prompt = ours.encode("the cat")
    assert ours.decode(prompt) == theirs.decode(theirs.encode("the cat")) == "the cat"
    target = TableModel(len(ours.pieces), 1, exact=False)
    model = TableModel(len(theirs.pieces), 2, exact=False)
    plain = generate(target, NoDrafter(), token_matching, prompt, k=1, stops=Stops(20), chance=SampledChance(5))
    for drafter in (
        Reencoded(ModelDrafter(model), ours, theirs, begin=(0,)),
        ModelDrafter(SharedVocabulary(model, ours, theirs, shared, target.vocabulary, begin=(0,))),
    ):
        out = generate(target, drafter, token_matching, prompt, k=4, stops=Stops(20), chance=SampledChance(5))
        assert out.tokens == plain.tokens
        assert sum(len(round.drafted) for round in out.rounds) > 20


def test_bad_use():
    model = TableModel(4, 0)
    with pytest.raises(ValueError, match="share no token"):
        SharedVocabulary(model, TARGET, OTHER, {}, 3)
    with pytest.raises(ValueError, match="token 4 stands for 0"):
        SharedVocabulary(model, TARGET, OTHER, {4: 0}, 3)
    with pytest.raises(ValueError, match="token 0 stands for 3"):
        SharedVocabulary(model, TARGET, OTHER, {0: 3}, 3)
    with pytest.raises(ValueError, match="two tokens of the draft model"):
        SharedVocabulary(model, TARGET, OTHER, {0: 1, 1: 1}, 3)
    with pytest.raises(ValueError, match="'a' is empty or occurs twice"):
        PieceCodec(["a", "a"])
    with pytest.raises(ValueError, match="no piece begins the text 'c'"):
        PieceCodec(["a"]).encode("ac")
