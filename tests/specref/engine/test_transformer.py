"""The same engine over the small trained transformer: its cache holds real keys and values.

In float64, so that the width of a pass can't turn a token. The models take their norms in float32 whatever their weights are,
which leaves differences of up to 1e-6 in what is cached; an entry of another token differs by 1e-2 and more, asserted too.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from specref import pretrained
from specref.chance import SampledChance
from specref.drafters.multi_token import MultiTokenHeads
from specref.drafters.prompt_lookup import PromptLookup
from specref.engine import CachedTransformer, Engine, Speculation, by_draft_model, by_drafter
from specref.engine.models import no_entries, read_text
from specref.generate import NoDrafter, generate
from specref.models import Tokens, TransformersModel
from specref.processors import Processed, SamplingSettings
from specref.rules import chain, tree

TOLERANCE = 1e-6
SHAPE = (-1, 0, 0, 1, 1, 2)


@pytest.fixture(scope="module")
def family() -> SimpleNamespace:
    models = {name: TransformersModel.load(pretrained.path(name), torch.float64) for name in ("target", "draft")}
    tokenizer = AutoTokenizer.from_pretrained(pretrained.path("target"), local_files_only=True)
    texts = [tuple(tokenizer(document).input_ids[:24]) for document in pretrained.held_out()[:3]]
    torch.manual_seed(0)
    heads = MultiTokenHeads(models["target"].model, depth=2)  # untrained: they draft nonsense
    cached = {name: CachedTransformer(model.model) for name, model in models.items()}
    return SimpleNamespace(plain=models["target"], **cached, texts=texts, heads=heads)


def requests(family: SimpleNamespace) -> list[tuple[Tokens, SamplingSettings, Speculation]]:
    """Of every kind one, whose output is plain decoding's: by chain and by tree, matched and greedy, with penalties."""
    drawn, tree_drawn = by_draft_model(family.draft), by_draft_model(family.draft, SHAPE)
    one, two, three = family.texts
    return [
        (one, SamplingSettings(max_tokens=16, seed=1), Speculation(chain.token_matching, drawn, k=3)),
        (two, SamplingSettings(max_tokens=16, temperature=0), Speculation(tree.traversal, tree_drawn, k=2, nodes=5)),
        (
            one,
            SamplingSettings(max_tokens=12, seed=2, temperature=0.8, presence_penalty=0.6, top_k=20),
            Speculation(chain.token_matching, by_drafter(PromptLookup()), k=4),
        ),
        (three, SamplingSettings(max_tokens=12, temperature=0), Speculation(chain.ratio, by_drafter(family.heads), k=2)),
    ]


def plain_output(family: SimpleNamespace, prompt: Tokens, asked: SamplingSettings) -> Tokens:
    model = Processed(family.plain, asked.processors(), len(prompt))
    chance = SampledChance(asked.seed or 0)
    return generate(model, NoDrafter(), chain.token_matching, prompt, k=1, stops=asked.stops(), chance=chance).tokens


def test_a_batch_writes_what_plain_decoding_writes_and_caches_what_a_fresh_prefill_leaves(family: SimpleNamespace) -> None:
    engine = Engine(family.target, pages=40, page_size=4, chunk=10, batch=3)
    asked = {engine.submit(*request): request for request in requests(family)}
    seen = 0
    for turn in range(100):
        if turn == 3:
            engine.preempt(0)
        for state in engine.step():
            for model, rows in ((family.target, state.cache), (family.draft, state.draft_cache)):
                if rows is not None and len(rows):
                    expected = read_text(model, no_entries(model), state.committed[: len(rows)]).entries
                    assert np.abs(rows - expected).max() < TOLERANCE
                    seen += len(rows)
    assert seen > 0
    for number, (prompt, settings, _) in asked.items():
        state = engine.state(number)
        assert (state.status, state.output) == ("finished", plain_output(family, prompt, settings))
        model = Processed(family.plain, (), len(prompt))
        laws = [model.next_law(prompt + state.output[:i]) for i in range(len(state.output))]
        assert np.allclose(state.logprobs, [np.log(law[token]) for law, token in zip(laws, state.output)], atol=1e-4)
    assert engine.metrics.accepted > 10


def test_an_entry_of_another_token_is_far_outside_the_tolerance(family: SimpleNamespace) -> None:
    text = family.texts[0]
    one, other = (read_text(family.target, no_entries(family.target), (*text, last)).entries[-1] for last in (5, 6))
    assert np.abs(one - other).max() > 1e-2
