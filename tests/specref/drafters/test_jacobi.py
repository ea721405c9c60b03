from __future__ import annotations

import random
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specref import pretrained
from specref.chance import SampledChance
from specref.drafters.jacobi import Jacobi, agreement, generate, jacobi
from specref.generate import NoDrafter
from specref.generate import generate as generate_in_rounds
from specref.models import TableModel, TransformersModel
from specref.rules import rewired
from specref.rules.chain import greedy
from specref.stopping import Stops


def plain_greedy(target, prompt, stops):
    return generate_in_rounds(target, NoDrafter(), greedy, prompt, k=1, stops=stops, chance=SampledChance(0)).tokens


def tiny():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=20, initializer_range=0.5, **sizes)).double()


def random_instance(dice):
    kind = dice.choice(["plain", "zeros", "ties", "one_hot", "mixed"])
    target = TableModel(dice.randint(2, 5), dice.random(), kind, memory=dice.choice([1, 2, None]))
    n = dice.randint(1, 7)
    return target, (0,), tuple(dice.choices(range(target.vocabulary), k=n))


def test_the_fixed_point_is_greedys_after_at_most_n_passes():
    dice = random.Random()
    for _ in range(300):
        target, context, guess = random_instance(dice)
        n = len(guess)
        expected = plain_greedy(target, context, Stops(n))
        found = jacobi(target, context, guess)
        assert found.tokens == expected
        assert found.passes == len(found.guesses) - 1 <= n
        assert found.guesses[0] == guess
        assert (found.final[0], found.final[-1]) == (0, n)
        for i, (block, final) in enumerate(zip(found.guesses, found.final)):
            assert final >= i, "a pass made no position final"
            assert block[:final] == expected[:final]
        assert jacobi(target, context, expected).passes == 1, "a right guess is known to be right after one pass"
        again = tuple(int(law.argmax()) for law in target.next_laws(context, found.tokens[:-1]))
        assert again == found.tokens, "it is a fixed point"


def test_final_counts_no_lucky_token():
    """A token that is right by luck, but was computed from a wrong prefix, is not called final."""
    dice, lucky = random.Random(), 0
    for _ in range(300):
        target, context, guess = random_instance(dice)
        found = jacobi(target, context, guess)
        for block, final in zip(found.guesses[1:], found.final[1:]):
            right = agreement(block, found.tokens)
            assert final <= right
            lucky += final < right
    assert lucky > 0


def off_by_one(target):
    """The published slip: position i is corrected from the logits after y[:i+1] instead of y[:i]."""
    shifted = Mock(wraps=target, vocabulary=target.vocabulary)
    shifted.next_laws = lambda context, block: target.next_laws(context, (*block, 0))[1:]
    return shifted


def unverified(one, other):
    """Another one: the loop ends after a fixed number of passes, here the first, with everything called final."""
    return len(one)


def test_published_slips_show():
    dice = random.Random()
    wrong = {"shifted": 0, "unverified": 0}
    for _ in range(60):
        target, context, guess = random_instance(dice)
        expected = plain_greedy(target, context, Stops(len(guess)))
        wrong["shifted"] += jacobi(off_by_one(target), context, guess).tokens != expected
        wrong["unverified"] += rewired(jacobi, agreement=unverified)(target, context, guess).tokens != expected
    assert min(wrong.values()) > 5, wrong


def test_ends_whatever_the_target_does():
    """Near-ties may round differently from pass to pass; what was final stays, so n passes are always enough."""
    dice = random.Random()
    flickering = Mock(vocabulary=4)
    flickering.next_laws = lambda context, block: [np.array(dice.choices(range(9), k=4)) for _ in range(len(block) + 1)]
    for _ in range(50):
        found = jacobi(flickering, (0,), (0,) * 6)
        assert found.passes <= 6
        for before, after, final in zip(found.guesses, found.guesses[1:], found.final):
            assert before[:final] == after[:final]


def test_one_pass_of_a_transformers_model_per_iteration():
    model = tiny()
    target = TransformersModel(model)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    found = jacobi(target, (1, 5, 2), guess=(3,) * 6)
    assert len(passes) == found.passes <= 6
    assert found.tokens == plain_greedy(target, (1, 5, 2), Stops(6))


def test_blocks_end_where_the_stops_say():
    for seed in range(40):
        target = TableModel(4, seed, "zeros")
        stops = Stops(9, eos=[3], min_tokens=2)
        tokens, blocks = generate(target, (1,), block=4, stops=stops)
        assert tokens == plain_greedy(target, (1,), stops)
        assert sum(len(block.tokens) for block in blocks) >= len(tokens)


def check_the_family(documents, length):
    target = TransformersModel.load(pretrained.path("target"), dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"))
    stops = Stops(length, eos=[tokenizer.eos_token_id])
    passes = written = 0
    for text in documents:
        prompt = (tokenizer.bos_token_id, *tokenizer(text[:24])["input_ids"])
        tokens, blocks = generate(target, prompt, block=8, stops=stops)
        assert tokens == plain_greedy(target, prompt, stops)
        passes += sum(block.passes for block in blocks)
        written += len(tokens)
    assert passes < written, "nothing was saved"


def test_equals_plain_greedy_on_the_family():
    first, *others = pretrained.held_out()
    check_the_family([first, *random.sample(others, 3)], length=16)  # the first saves 14 passes; one in five saves none


@pytest.mark.long
def test_equals_plain_greedy_on_the_family_for_50_prompts():
    check_the_family(pretrained.held_out()[:50], length=48)


def test_drawing():
    assert str(Jacobi(((5, 6), (1, 6), (1, 2)), (0, 1, 2))) == "| 5 6\n1 | 6\n1 2 |"


def test_bad_input():
    target = TableModel(3, 0)
    with pytest.raises(ValueError, match="guess is empty"):
        jacobi(target, (), ())
    with pytest.raises(ValueError, match="guessed token 3 is outside the target's vocabulary of 3"):
        jacobi(target, (), (0, 3))
    with pytest.raises(ValueError, match="block is 0"):
        generate(target, (1,), block=0, stops=Stops(3))
    with pytest.raises(ValueError, match="prompt is empty"):
        generate(target, (), block=2, stops=Stops(3))
    with pytest.raises(ValueError, match="prompt token -1 is outside"):
        generate(target, (-1,), block=2, stops=Stops(3))
