from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from drafting import in_float64
from transformers import LlamaConfig, LlamaForCausalLM

from specref.chance import SampledChance, exact_law_of_rounds
from specref.drafters.multi_token import MultiTokenHeads
from specref.generate import chain_round
from specref.laws import overlap, total_variation
from specref.models import TransformersModel, sequence_law
from specref.rules.chain import ratio
from specref.stopping import Stops

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}


def tiny(vocabulary=12):
    return in_float64(LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, initializer_range=0.5, **SIZES)))


def test_training_and_drafting_use_one_law():
    """The loss is the mean of -ln q over the very laws that `draft` draws from: head index and shift agree between the two."""
    heads = MultiTokenHeads(tiny(), depth=2)
    row = torch.randint(12, (1, 7))
    tokens = tuple(row[0].tolist())
    surprise = {1: [], 2: []}
    with torch.no_grad():
        for t in range(len(tokens) - 2):
            hidden = heads._hidden(torch.tensor([tokens[: t + 1]]))
            for i in (1, 2):
                if t + i + 1 < len(tokens):
                    law = heads._law(hidden, tokens[: t + i + 1])
                    surprise[i].append(-math.log(law[tokens[t + i + 1]]))
    expected = np.mean([np.mean(surprise[1]), np.mean(surprise[2])])
    assert heads.loss(row).item() == pytest.approx(expected, abs=1e-9)


def test_drafts_are_drawn_from_their_laws_one_after_another():
    heads = MultiTokenHeads(tiny(), depth=2)
    context = (1, 5, 2, 7)
    draft = heads.draft(context, 4, SampledChance(3))
    assert len(draft.tokens) == 4  # the second head goes on
    with torch.no_grad():
        hidden = heads._hidden(torch.tensor([context[:-1]]))
        for i, law in enumerate(draft.laws):
            np.testing.assert_allclose(law, heads._law(hidden, context + draft.tokens[:i]), atol=1e-12)
            chance = SampledChance(3)
            assert chance.picks(law, slot=("draft", i)) == draft.tokens[i]
    other = (context[0], 6, *context[2:])
    assert not np.allclose(heads.draft(other, 1, SampledChance(3)).laws[0], draft.laws[0])


def test_lossless_under_the_ratio_rule():
    model = tiny(vocabulary=3)
    target, heads, prompt, stops = TransformersModel(model), MultiTokenHeads(model, depth=1), (0, 1), Stops(3)

    def step(tokens, chance):
        chance.begin_round(len(tokens))
        *_, emitted = chain_round(prompt + tokens, target, heads, ratio, min(2, stops.room(tokens) - 1), chance)
        return tokens + stops.cut(tokens, emitted)

    assert total_variation(exact_law_of_rounds(step, (), stops.finished), sequence_law(target, prompt, 3)) < 1e-9


def written_by(model, rows=64, length=16):
    begin = torch.randint(12, (rows, 1))
    how = {"do_sample": True, "top_k": 0, "min_new_tokens": length - 1, "max_new_tokens": length - 1}
    return model.generate(begin, attention_mask=torch.ones_like(begin), pad_token_id=0, **how)


def gain_by_training():
    """Of a random model's acceptance, by 60 steps."""
    model = tiny()
    rows = written_by(model)
    heads, target = MultiTokenHeads(model, depth=2), TransformersModel(model)

    def acceptance():
        shared = []
        for row in rows[:30].tolist():
            draft = heads.draft(tuple(row[:8]), 2, SampledChance(1))
            laws = target.next_laws(tuple(row[:8]), draft.tokens)
            shared += [overlap(p, q) for p, q in zip(laws, draft.laws)]
        return np.mean(shared)

    before, loss = acceptance(), heads.loss(rows).item()
    optimiser = torch.optim.AdamW(heads.parameters(), lr=1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        heads.loss(rows).backward()
        optimiser.step()
    assert heads.loss(rows).item() < loss
    assert all(weight.requires_grad for weight in heads.parameters())
    assert not {id(weight) for weight in heads.parameters()} & {id(weight) for weight in model.parameters()}
    return acceptance() - before


def test_training_raises_acceptance():
    """26 models gained .13 to .45; a mean of four below .05 would be 5 standard deviations off."""
    assert np.mean([gain_by_training() for _ in range(4)]) > 0.05


def test_edges():
    heads = MultiTokenHeads(tiny(), depth=2)
    empty = heads.draft((1,), 3, SampledChance(0))
    assert (empty.tokens, empty.laws) == ((), ())
    with pytest.raises(ValueError, match="depth is 0"):
        MultiTokenHeads(tiny(), depth=0)
    with pytest.raises(ValueError, match="rows of 3 tokens are too short to train 2 heads"):
        heads.loss(torch.tensor([[1, 2, 3]]))
