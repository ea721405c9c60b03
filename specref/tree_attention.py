"""Tree attention: one pass of a transformers model answers at every node of a token tree.

    node i sees what is in the cache, its ancestors and itself       a 4-D additive mask, 0 or -inf
    node i stands at position (length of the cache) + (its depth)    position ids

With both, the logits at a node are those of its path run alone, whatever else is in the pass. Source: Cai et al. 2401.10774
(Medusa), section 2.1.2; Miao et al. 2305.09781 (SpecInfer), section 4.2.

`tree_pass` is that one pass. `TreeTarget` keeps a cache from round to round: after a round it holds the tree, and the next
context says which path of it was kept; the rows of the other nodes are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from specref.laws import Law
from specref.models import BadModel, Tokens, TransformersModel, softmax
from specref.tree import BadTree, TokenTree


def additive_mask(tree: TokenTree, cached: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """The attention mask `[1, 1, N, cached + N]` of a tree behind `cached` rows: 0 where a node sees a row, -inf elsewhere.

    >>> additive_mask(TokenTree([7, 1, 2], parents=[-1, 0, 0]), cached=1)[0, 0]
    tensor([[0., 0., -inf, -inf],
            [0., 0., 0., -inf],
            [0., 0., -inf, 0.]])
    """
    seen = np.concatenate([np.ones((len(tree), cached), dtype=np.bool_), tree.ancestor_mask()], axis=1)
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~torch.from_numpy(seen), -torch.inf)[None, None]


def tree_pass(model: Any, tree: TokenTree, cache: DynamicCache, layers: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
    """One pass of `model` over `tree` behind what is in `cache`, which grows by one row per node.

    Returns the logits `[N, V]` and the features `[N, len(layers) d]`: side by side, the hidden states that enter layer i (0 is
    the first, whose input are the embeddings) for each i of `layers`; i = number of layers is what the LM head is given.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> model, cache = LlamaForCausalLM(LlamaConfig(**sizes)).eval(), DynamicCache()
    >>> logits, features = tree_pass(model, TokenTree([7, 1, 2], parents=[-1, 0, 0]), cache, layers=[0, 1])
    >>> tuple(logits.shape), tuple(features.shape), cache.get_seq_length()
    ((3, 8), (3, 16), 3)
    """
    cached = cache.get_seq_length()
    device, dtype = model.device, model.dtype
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([tree.tokens], device=device),
            attention_mask=additive_mask(tree, cached, dtype).to(device),
            position_ids=torch.tensor([tree.position_ids(cached)], device=device),
            cache=cache,
            use_cache=True,
            output_hidden_states=True,
        )
    features = [out.hidden_states[layer][0] for layer in layers]
    return out.logits[0], torch.cat(features, dim=-1) if features else out.logits.new_empty(len(tree), 0)


def keep_rows(cache: DynamicCache, rows: Sequence[int]) -> None:
    """Keep these rows of a cache, in this order, and drop the others.

    >>> cache = DynamicCache()
    >>> _ = cache.update(torch.arange(3.0).view(1, 1, 3, 1), torch.zeros(1, 1, 3, 1), 0)
    >>> keep_rows(cache, [0, 2])
    >>> cache.layers[0].keys.flatten()
    tensor([0., 2.])
    """
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, list(rows)], layer.values[:, :, list(rows)]


class TreeTarget(TransformersModel):
    """A target that answers at every node of a tree in one pass, and keeps the features that Medusa and EAGLE draft from.

    model: a causal language model of transformers with full attention in every layer. layers: which hidden states are the
    features (see `tree_pass`; the default is what the LM head is given). Rows of the cache are kept as long as a context begins
    with their tokens, whether they were read as text or as a node of a tree: a round of speculation costs one pass.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> target = TreeTarget(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> tree = TokenTree([5, 1, 2], parents=[-1, 0, 0])              # 5 is the last token of the context
    >>> target.tree_logits((3, 5), tree).shape, tuple(target.features((3, 5)).shape)
    ((3, 8), (2, 8))
    >>> bool(np.allclose(target.tree_laws((3, 5), tree)[2], target.next_law((3, 5, 2)), atol=1e-6))
    True

    Raises ValueError for a model with sliding-window or other attention, or a layer that it does not have.
    """

    def __init__(self, model: Any, layers: Sequence[int] | None = None) -> None:
        super().__init__(model)
        config = model.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
            raise ValueError(f"a tree needs full attention in every layer, and {type(model).__name__} has another kind")
        whole = config.num_hidden_layers
        self.layers = (whole,) if layers is None else tuple(layers)
        for layer in self.layers:
            if not 0 <= layer <= whole:
                raise ValueError(f"layer {layer} is outside 0..{whole}; {whole} stands for what the LM head is given")
        self._tokens: Tokens = ()  # the cache holds one row per token here, then one per node of the tree; so do the features
        self._tree: TokenTree | None = None
        self._features = torch.empty(0)
        self._forget()

    def logits(self, tokens: Tokens, rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Raw float64 logits `[rows, V]` after the last `rows` prefixes of `tokens`. Raises BadModel if they are not finite."""
        if len(tokens) < rows:
            raise ValueError("a transformers model answers after one token or more; start the prompt with a BOS token")
        context, drafted = tokens[: len(tokens) - rows + 1], tokens[len(tokens) - rows + 1 :]
        return self.tree_logits(context, TokenTree.chain(context[-1], drafted))

    def tree_logits(self, context: Tokens, tree: TokenTree) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Raw float64 logits `[N, V]` after each node of `tree`, whose root is the last token of `context`.

        Raises BadTree for another root, BadModel if the logits are not finite.
        """
        if not context or context[-1] != tree.tokens[0]:
            raise BadTree(f"the root holds token {tree.tokens[0]}, but the context ends with {context[-1:]}")
        logits = self._read(context, tree)[-len(tree) :].double().cpu().numpy()
        if not np.isfinite(logits).all():
            raise BadModel(f"the model gave logits that are not finite after {len(context)} tokens")
        result: np.ndarray[Any, np.dtype[np.float64]] = logits
        return result

    def tree_laws(self, context: Tokens, tree: TokenTree) -> list[Law]:
        """The laws `[N, V]` after each node of `tree`, whose root is the last token of `context`: what tree rules are given."""
        return list(softmax(self.tree_logits(context, tree)))

    def features(self, context: Tokens) -> Tensor:
        """The features `[len(context), len(layers) d]` of every token of `context`; only what was not read yet is computed."""
        self._keep(context)
        if len(self._tokens) < len(context):
            self._read(context, TokenTree.chain(context[-1], ()))
        return self._features[: len(context)]

    def _read(self, context: Tokens, tree: TokenTree) -> Tensor:
        """One pass over what of `context` is not in the cache, its last token as the root of `tree`: logits of all rows."""
        before = context[:-1]
        self._keep(before)
        text = before[len(self._tokens) :]
        whole = TokenTree(text + tree.tokens, [*range(-1, len(text)), *(len(text) + parent for parent in tree.parents[1:])])
        logits, features = tree_pass(self.model, whole, self._cache, self.layers)
        self._features = torch.cat([self._features, features]) if len(self._features) else features
        self._tokens, self._tree = before, tree
        return logits

    def _keep(self, tokens: Tokens) -> None:
        """Keep the rows whose tokens begin `tokens`, along the text and then along one path of the tree behind it."""
        kept = 0
        while kept < min(len(tokens), len(self._tokens)) and tokens[kept] == self._tokens[kept]:
            kept += 1
        rows = list(range(kept))
        if self._tree is not None and kept == len(self._tokens):
            candidates: Sequence[int] = (0,)
            for token in tokens[kept:]:
                node = next((node for node in candidates if self._tree.tokens[node] == token), None)
                if node is None:
                    break
                rows.append(kept + node)
                candidates = self._tree.children(node)
        if not rows:
            self._forget()
            return
        keep_rows(self._cache, rows)
        self._tokens, self._tree, self._features = tokens[: len(rows)], None, self._features[rows]

    def _forget(self) -> None:
        self._tokens, self._tree = (), None
        self._cache = DynamicCache()
        self._features = torch.empty(0)
