"""Trees through transformers: one pass over a flattened tree under a 4-D mask, after a prefix that is cached.

The mask is the library's own way of saying who sees whom: `[1, 1, N, n + N]`, additive for eager and sdpa attention. Flex
attention takes no such tensor but a block mask, made here from the same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from conformance.components import TreeReader
from conformance.engines.transformers.architectures import V, tiny
from conformance.engines.transformers.caches import read
from conformance.protocols import Tokens, Unsupported
from specref.tree import TokenTree

PAIRS = (
    ("llama", "eager"),
    ("llama", "sdpa"),
    ("llama", "flex_attention"),
    ("gpt2", "eager"),
    ("gpt2", "sdpa"),
    ("qwen3", "sdpa"),
    ("gpt_neox", "eager"),
    ("gpt_neox", "sdpa"),
    ("glm4", "eager"),
    ("olmo2", "sdpa"),
    ("mixtral", "sdpa"),
)
"""Architectures of one kind of mask for all layers, and implementations of attention."""


class MaskedTree:
    """A tiny model of one architecture that reads trees; ids are taken modulo its vocabulary."""

    vocabulary = V

    def __init__(self, architecture: str, attention: str) -> None:
        self.architecture, self.attention = architecture, attention
        self.name = f"4-D mask, {attention}, {architecture}"

    def tree(self, prefix: Tokens, tokens: Tokens, parents: Tokens) -> npt.NDArray[Any]:
        """See `TreeReader.tree`."""
        model = tiny(self.architecture, self.attention)
        cache = transformers.DynamicCache(config=model.config.get_text_config(decoder=True))
        n, N = len(prefix), len(tokens)
        if n:
            read(model, (), prefix, cache)
        shape = TokenTree(tokens, parents)
        seen = torch.cat([torch.ones(N, n, dtype=torch.bool), torch.from_numpy(shape.ancestor_mask())], dim=1)
        ids = torch.tensor([[token % V for token in tokens]])
        positions = torch.tensor([list(shape.position_ids(n))])
        with torch.inference_mode():
            out = model(input_ids=ids, attention_mask=self._mask(seen), position_ids=positions, cache=cache, use_cache=True)
        return np.asarray(out.logits[0].double())

    def alone(self, context: Tokens) -> npt.NDArray[Any]:
        """See `TreeReader.alone`."""
        model = tiny(self.architecture, self.attention)
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([[token % V for token in context]]), use_cache=False)
        return np.asarray(out.logits[0, -1].double())

    def _mask(self, seen: torch.Tensor) -> Any:
        if self.attention != "flex_attention":
            return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
        try:
            from torch.nn.attention.flex_attention import create_block_mask
        except ImportError as missing:
            raise Unsupported("attn_implementation='flex_attention' is not in this version of torch") from missing

        def may_see(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return seen[query, key]

        return create_block_mask(may_see, None, None, seen.shape[0], seen.shape[1], device="cpu")


def readers() -> Sequence[TreeReader]:
    """Tiny models with every implementation of attention that runs on a CPU."""
    return [MaskedTree(*pair) for pair in PAIRS]
