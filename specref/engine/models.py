"""Models that read through a cache: the engine gives them what its cache holds, and they answer from that alone.

A model that is asked with the tokens of the context can't notice a wrong cache. The ones here are never told the context: they
get the entries of the past, the new tokens, and who sees whom; so whatever is wrong with a cache shows in the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from specref.kv_cache.base import Rows
from specref.laws import Law
from specref.models import BadModel, TableModel, Tokens
from specref.processors.rows import Row
from specref.tree import TokenTree

Mask = npt.NDArray[np.bool_]
Entry: TypeAlias = tuple[int, int, int]
"""What a table's token leaves in the cache: itself, its position, and a number made from it and the entry before."""


@dataclass(frozen=True)
class Reading:
    """What one pass over n tokens leaves and says.

    entries `[n, *entry_shape]`: what to keep in the cache, one entry per token. scores: one row `[V]` per token, about the one
    that follows it: float64 logits, or Fractions for an exact model (the rows that processors work on).
    """

    entries: Rows
    scores: Sequence[Row]


class CachedModel(Protocol):
    """A language model that sees the past through cache entries."""

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""

    @property
    def entry_shape(self) -> tuple[int, ...]:
        """The shape of the entry that one token leaves in the cache."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """What entries are made of."""

    def read(self, past: Rows, tokens: Tokens, positions: Tokens, mask: Mask) -> Reading:
        """One pass over `tokens [n]` behind the entries `past [m, *entry_shape]`, all of which every token sees.

        positions `[n]`: where each token stands in the text. mask `[n, n]`: whether token i (row) sees token j (column).
        """


def read_text(model: CachedModel, past: Rows, tokens: Tokens) -> Reading:
    """One pass over plain text: each token sees those before it, at the positions that follow `past`.

    >>> model = CachedTableModel(TableModel(3, seed=1))
    >>> reading = read_text(model, no_entries(model), (0, 2))
    >>> reading.entries[:, :2]
    array([[0, 0],
           [2, 1]])
    >>> bool((reading.scores[1] == model.table.next_law((0, 2))).all())
    True
    """
    chain = TokenTree.chain(tokens[0], tokens[1:])
    return model.read(past, tokens, chain.position_ids(len(past)), chain.ancestor_mask())


def no_entries(model: CachedModel) -> Rows:
    """The past of a text that has not begun.

    >>> no_entries(CachedTableModel(TableModel(3, seed=1))).shape
    (0, 3)
    """
    return np.empty((0, *model.entry_shape), model.dtype)


class CachedTableModel:
    """A `TableModel` that reads its context off the cache.

    An entry is (token, position, a number made from it and the entry before): as in a deep network, it depends on all that came
    before. An entry that does not fit the entry before it, or its place, is understood as another token, (token + 1) mod V. So
    a lost, stale, misplaced or overwritten entry gives the law of another context.

    >>> model = CachedTableModel(TableModel(3, seed=1))
    >>> entries = read_text(model, no_entries(model), (0, 2, 1)).entries
    >>> model.understood(entries), model.understood(entries[[0, 2]])
    ((0, 2, 1), (0, 2))
    """

    entry_shape = (3,)
    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, table: TableModel) -> None:
        self.table = table

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self.table.vocabulary

    def read(self, past: Rows, tokens: Tokens, positions: Tokens, mask: Mask) -> Reading:
        """See `CachedModel.read`."""
        before = past.tolist()
        known, last = self._spelled(before), before[-1][2] if before else 0  # once for all new tokens
        entries: list[Entry] = []
        laws: list[Law] = []
        for i, (token, position) in enumerate(zip(tokens, positions)):
            seen = [entries[j] for j in range(i) if mask[i, j]]
            entries.append((token, position, _number(seen[-1][2] if seen else last, token, position)))
            laws.append(self.table.next_law(known + self._spelled([*seen, entries[i]], len(past), last)))
        with np.errstate(divide="ignore"):
            return Reading(np.array(entries, self.dtype), [law if law.dtype == object else np.log(law) for law in laws])

    def understood(self, entries: Rows) -> Tokens:
        """The context that these entries `[n, 3]` spell."""
        return self._spelled(entries.tolist())

    def _spelled(self, entries: Sequence[Entry], place: int = 0, before: int = 0) -> Tokens:
        """place: the first one's. before: the number of the entry before it."""
        tokens = []
        for where, (token, position, number) in enumerate(entries, start=place):
            fits = position == where and number == _number(before, token, position)
            tokens.append(token if fits else (token + 1) % self.vocabulary)
            before = number
        return tuple(tokens)


def _number(before: int, token: int, position: int) -> int:
    """A number below 2^62 for a token at a position after an entry; another token, position or entry gives another number."""
    return (before * 6364136223846793005 + (token + 2) * 1442695040888963407 + position * 2862933555777941757 + 1) % 2**62


class CachedTransformer:
    """A causal language model of transformers whose keys and values are the engine's cache entries `[layers, 2, heads, width]`.

    Copies them in and out at every pass, one request at a time: plain, not fast, and no bit of a row depends on its batch.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
    >>> model = CachedTransformer(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> first = read_text(model, no_entries(model), (5, 1))
    >>> first.entries.shape
    (2, 1, 2, 2, 4)
    >>> behind, at_once = read_text(model, first.entries, (3,)), read_text(model, no_entries(model), (5, 1, 3))
    >>> bool(np.allclose(behind.scores[0], at_once.scores[2], atol=1e-6))
    True

    Raises ValueError for a model with sliding-window or other attention: their caches hold something else.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
            raise ValueError(f"entries are keys and values of full attention, and {type(model).__name__} has another kind")
        self.model = model.eval()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.vocabulary = int(config.vocab_size)
        self.entry_shape = (int(config.num_hidden_layers), 2, int(heads), int(width))
        self.dtype: np.dtype[Any] = torch.empty(0, dtype=model.dtype).numpy().dtype

    def read(self, past: Rows, tokens: Tokens, positions: Tokens, mask: Mask) -> Reading:
        """See `CachedModel.read`. Raises BadModel if the logits are not finite."""
        cache = DynamicCache()
        if len(past):
            layers = torch.from_numpy(np.ascontiguousarray(past)).permute(1, 2, 3, 0, 4)  # [layers, 2, heads, m, width]
            for layer, (keys, values) in enumerate(layers):
                cache.update(keys[None], values[None], layer)
        seen = torch.from_numpy(np.concatenate([np.ones((len(tokens), len(past)), dtype=np.bool_), mask], axis=1))
        with torch.inference_mode():
            out = self.model(
                input_ids=torch.tensor([tokens]),
                attention_mask=torch.zeros(seen.shape, dtype=self.model.dtype).masked_fill(~seen, -torch.inf)[None, None],
                position_ids=torch.tensor([positions]),
                cache=cache,
                use_cache=True,
            )
        logits = out.logits[0].double().numpy()
        if not np.isfinite(logits).all():
            raise BadModel(f"the model gave logits that are not finite after {len(past)} entries and the tokens {tokens}")
        new = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])[:, :, :, len(past) :]
        return Reading(new.permute(3, 0, 1, 2, 4).numpy().copy(), list(logits))
