"""The protocol fits a real model, and the contract holds there: keys and values after any rounds are a fresh prefill's.

A tiny Llama in float64, whose cache is transformers' own. Rotary keys carry their position; a node is read at position
length + depth, so a gathered row needs no repair.

The tolerance of 1e-6 is what float32 leaves: this model takes its norms in float32 whatever its weights are (and eager
attention its softmax, which alone shows differences of 1e-8). One wrong token 50 places earlier changes a row by 1e-4 and
more, which is asserted too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from specref.kv_cache import KVCache
from specref.kv_cache.base import Rows, checked_path
from specref.tree import TokenTree

VOCABULARY = 13


def tiny_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).double().eval()


class LlamaCache:
    """A `KVCache` that takes token ids, lets the model read them, and rolls back the model's own cache."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model, self.store, self.length = model, DynamicCache(), 0
        self.tree: TokenTree | None = None

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None, /) -> None:
        tree = TokenTree(tokens, range(-1, len(tokens) - 1) if parents is None else parents)
        depth = [len(tree.path(node)) for node in range(len(tree))]
        seen = torch.zeros(len(tree), self.length + len(tree), dtype=torch.bool)
        seen[:, : self.length] = True
        for node in range(len(tree)):
            seen[node, [self.length + above for above in (0, *tree.path(node))]] = True
        mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)
        with torch.inference_mode():
            self.model(
                torch.tensor([list(tokens)]),
                attention_mask=mask[None, None],
                position_ids=torch.tensor([depth]) + self.length,
                cache=self.store,
            )
        if parents is None:
            self.length += len(tokens)
        else:
            self.tree = tree

    def rollback(self, length: int, /) -> None:
        self.keep(range(length))

    def gather(self, path: Sequence[int], /) -> None:
        assert self.tree is not None
        nodes = (0, *checked_path(path, self.tree))
        self.keep([*range(self.length), *(self.length + node for node in nodes)])

    def keep(self, slots: Sequence[int]) -> None:
        for layer in self.store.layers:
            layer.keys, layer.values = layer.keys[:, :, list(slots)], layer.values[:, :, list(slots)]
        self.length, self.tree = len(slots), None

    def visible(self) -> Rows:
        """Keys and values `[length, layers, 2, heads, head size]`."""
        layers = [torch.stack([layer.keys[0], layer.values[0]]) for layer in self.store.layers]
        return np.asarray(torch.stack(layers)[:, :, :, : self.length].permute(3, 0, 1, 2, 4))


def test_rounds_on_a_real_model() -> None:
    model, rng = tiny_llama(), np.random.default_rng()
    real = LlamaCache(model)
    cache: KVCache = real
    tokens = rng.integers(VOCABULARY, size=5).tolist()
    cache.append(tokens)
    for _ in range(12):
        size = int(rng.integers(2, 7))
        drafted = rng.integers(VOCABULARY, size=size).tolist()
        start = len(tokens)
        if rng.random() < 0.5:
            cache.append(drafted)
            tokens += drafted[: rng.integers(1, size + 1)]
            cache.rollback(len(tokens))
        else:
            tree = TokenTree(drafted, [-1, *(int(rng.integers(node)) for node in range(1, size))])
            node = int(rng.integers(size))
            cache.append(drafted, tree.parents)
            cache.gather(tree.path(node))
            tokens += [drafted[0], *tree.spells(node)]
        fresh = LlamaCache(model)
        fresh.append(tokens)
        assert cache.length == len(tokens) > start
        np.testing.assert_allclose(cache.visible(), fresh.visible(), rtol=0, atol=1e-6)
        wrong = LlamaCache(model)  # one early token changed: the comparison would show it
        wrong.append([(tokens[0] + 1) % VOCABULARY, *tokens[1:]])
        assert np.abs(cache.visible()[-1] - wrong.visible()[-1]).max() > 1e-5
