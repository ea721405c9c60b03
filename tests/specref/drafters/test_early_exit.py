from __future__ import annotations

import numpy as np
import pytest
import torch
from drafting import in_float64
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from specref.chance import SampledChance, exact_law_of_rounds
from specref.drafters.early_exit import EarlyExit
from specref.generate import GreedyDrafter, ModelDrafter, NoDrafter, chain_round, generate
from specref.laws import total_variation
from specref.models import TransformersModel, sequence_law
from specref.rules.chain import greedy, ratio
from specref.stopping import Stops

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2}


def tiny(vocabulary=20, layers=3, config=LlamaConfig, model=LlamaForCausalLM):
    return in_float64(model(config(vocab_size=vocabulary, num_hidden_layers=layers, initializer_range=0.5, **SIZES)))


@pytest.mark.parametrize(("config", "model"), [(LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM)])
@pytest.mark.parametrize("layers", [1, 2])
def test_logits_are_the_head_of_an_inner_hidden_state(config, model, layers):
    target = tiny(config=config, model=model)
    early = EarlyExit(target, layers)
    tokens = (1, 5, 2, 9, 9, 3)
    with torch.no_grad():
        inner = target(torch.tensor([tokens]), output_hidden_states=True).hidden_states[layers]
        expected = target.lm_head(target.model.norm(inner))[0].numpy()
    np.testing.assert_allclose(early.logits(tokens, len(tokens)), expected, atol=1e-12)
    np.testing.assert_allclose(
        early.logits((*tokens[:4], 7), 1), EarlyExit(target, layers).logits((*tokens[:4], 7), 1), atol=1e-9
    )


def test_the_target_is_untouched_and_no_weight_is_added():
    target = tiny()
    tokens = torch.tensor([[1, 5, 2]])
    before = target(tokens).logits
    early = EarlyExit(target, 1)
    early.next_law((1, 5, 2))
    assert (target(tokens).logits == before).all()
    assert target.config.num_hidden_layers == 3
    assert {id(weight) for weight in early.model.parameters()} < {id(weight) for weight in target.parameters()}


def distance_of_a_lossless_drafter():
    """Of a random model's early exit to the model itself, after the ratio rule was seen to be lossless with it."""
    model = tiny(vocabulary=3, layers=2)
    target, drafter, prompt, stops = TransformersModel(model), ModelDrafter(EarlyExit(model, 1)), (0, 1), Stops(3)

    def step(tokens, chance):
        chance.begin_round(len(tokens))
        *_, emitted = chain_round(prompt + tokens, target, drafter, ratio, min(2, stops.room(tokens) - 1), chance)
        return tokens + stops.cut(tokens, emitted)

    law = exact_law_of_rounds(step, (), stops.finished)
    assert total_variation(law, sequence_law(target, prompt, 3)) < 1e-9
    return total_variation(drafter.model.next_law(prompt), target.next_law(prompt))


def test_its_law_is_its_own_and_the_ratio_rule_lossless():
    assert max(distance_of_a_lossless_drafter() for _ in range(4)) > 1e-3  # 3 models in 1000 are below: four once in 1e10 runs


def test_greedy_output_is_the_targets():
    model = tiny()
    drafter, chance, stops = GreedyDrafter(EarlyExit(model, 2)), SampledChance(0), Stops(16)
    out = generate(TransformersModel(model), drafter, greedy, (1, 2), k=3, stops=stops, chance=chance)
    plain = generate(TransformersModel(model), NoDrafter(), greedy, (1, 2), k=1, stops=stops, chance=chance)
    assert out.tokens == plain.tokens


def test_bad_use():
    with pytest.raises(ValueError, match="after 3 of 3 layers: give 1 to 2"):
        EarlyExit(tiny(), 3)
    with pytest.raises(ValueError, match="after 0 of 3"):
        EarlyExit(tiny(), 0)
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel has no model\.layers"):
        EarlyExit(GPT2LMHeadModel(GPT2Config(vocab_size=8, n_embd=8, n_layer=2, n_head=2)), 1)
