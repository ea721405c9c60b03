"""What the tests of Medusa and EAGLE share: tiny models in float64, exact laws of rounds, verdicts on long outputs."""

from __future__ import annotations

import secrets

import numpy as np
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from conformance.statistics import BetTable, Ledger, ModePlan, Plan, Threshold, TokenBlock, leak
from specref.chance import SampledChance, exact_law_of_rounds
from specref.generate import chain_round, generate
from specref.models import TransformersModel, sequence_law
from specref.stopping import Stops
from specref.tree_generate import generate_with_trees, tree_round


def tiny_config(vocabulary, layers=1):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaConfig(vocab_size=vocabulary, num_hidden_layers=layers, initializer_range=0.4, pad_token_id=None, **sizes)


def tiny(vocabulary, layers=1):
    return in_float64(LlamaForCausalLM(tiny_config(vocabulary, layers)))


def in_float64(module):
    """The module all in float64: transformers' own norm computes in float32 whatever its weights are."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child).__name__ in ("LlamaRMSNorm", "Qwen2RMSNorm"):
                setattr(parent, name, nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon))
    return module.double().eval()


def written_by(model, rows=64, length=16):
    begin = torch.randint(model.config.vocab_size, (rows, 1))
    how = {"do_sample": True, "top_k": 0, "min_new_tokens": length - 1, "max_new_tokens": length - 1}
    return model.generate(begin, attention_mask=torch.ones_like(begin), pad_token_id=0, **how)


class Remembering:
    """Keeps the answers of a slow object, so that the branches of an enumeration do not ask for them again."""

    def __init__(self, asked, *methods):
        self._asked, self._methods, self._known, self._context = asked, methods, {}, None

    def __getattr__(self, name):
        answer = getattr(self._asked, name)
        if name not in self._methods:
            return answer

        def remembered(*arguments):
            key = (name, self._context, *map(str, arguments))
            if key not in self._known:
                if self._context is not None:
                    self._asked.begin(self._context)
                self._known[key] = answer(*arguments)
            return self._known[key]

        return remembered

    def begin(self, context):
        self._context = context


def exact_distance(model, target, drafter, rule, *, trees, k=2, length=3, prompt=(0, 1)):
    """Total variation between `length` tokens generated in rounds and sampled plainly, every branch enumerated."""
    stops, plain = Stops(length), TransformersModel(model)
    target = Remembering(target, "tree_laws", "next_laws", "next_law")
    if hasattr(drafter, "reader"):
        drafter.reader = Remembering(drafter.reader, "law", "laws")
    one_round = tree_round if trees else chain_round

    def step(tokens, chance):
        chance.begin_round(len(tokens))
        *_, emitted = one_round(prompt + tokens, target, drafter, rule, min(k, stops.room(tokens) - 1), chance)
        return tokens + stops.cut(tokens, emitted)

    law, wanted = exact_law_of_rounds(step, (), stops.finished), sequence_law(plain, prompt, length)
    return sum(abs(law.get(tokens, 0) - wanted.get(tokens, 0)) for tokens in {*law, *wanted}) / 2


def judged(model, q_of, drafter, rule, prompts, *, target, trees, tokens, depth=4):
    """The judge's verdict on one output per prompt, scored by `model`, and the smallest leak to q that it would have seen.

    q_of `(tokens of a whole sequence) -> [length, V]`: the draft's law of each token, row 0 for the first.
    """
    seed = secrets.randbits(32)
    mode = ModePlan.standard("sampled", tokens * len(prompts), segments=False, slots=False, batch=False, k=depth)
    ledger = Ledger(Plan((mode,), alpha=1e-6), run=f"seed {seed}", seed=seed)
    plain, whole = TransformersModel(model), []
    for request, prompt in enumerate(prompts):
        chance = SampledChance(seed + request)
        if trees:
            out = generate_with_trees(target, drafter, rule, prompt, depth=depth, stops=Stops(tokens), chance=chance)
        else:
            out = generate(target, drafter, rule, prompt, k=depth, stops=Stops(tokens), chance=chance)
        p = np.array(plain.next_laws(prompt, out.tokens[:-1]))
        q = q_of(prompt + out.tokens)[len(prompt) :]
        ledger.observe("sampled", TokenBlock(np.array(out.tokens), p, q, request=np.full(tokens, request)))
        whole.append((p, q))
    p, q = (np.concatenate(rows) for rows in zip(*whole))
    bank = Threshold(alpha=1e-6, weight=mode.weight * mode.checks["bank"])
    table = BetTable(ledger.judges["sampled"].bank, p, q)
    return ledger.look(), table.smallest_detectable(leak(p, q), len(p), bank)
