"""The caches of transformers in front of tiny models: token ids in, keys and values out.

A cache is driven as assisted generation drives it: it records its past, one pass reads the last committed token and the
drafts, and `crop` takes back what was rejected, even if that is nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from conformance.engines.transformers.architectures import ARCHITECTURES, V, tiny
from conformance.protocols import Unsupported
from conformance.statistics.greedy import MARGIN_CAPS

KINDS = ("dynamic", "static", "quantized")
LONGEST = 64
"""Entries of a static cache."""
MEASURED = 64
"""Sequences over which a tolerance is measured."""
DEFAULT = (
    *(("dynamic", name) for name in ("llama", "gpt2", "mistral", "gemma2", "gemma3n_text", "qwen2", "mixtral", "opt", "bloom")),
    *(("dynamic", name) for name in ("gpt_neo", "deepseek_v3", "llama4_text", "lfm2", "falcon")),
    *(("static", name) for name in ("llama", "gpt2", "gemma2", "bloom", "deepseek_v3")),
    ("quantized", "llama"),
)
"""Caches among the default components: one architecture at least for each kind of layer and of positions."""


class ModelCache:
    """A cache of transformers and the model that fills it; ids are taken modulo the model's vocabulary."""

    def __init__(self, model: Any, cache: Any, name: str) -> None:
        self.model, self.cache, self.name = model, cache, name
        self.read: list[int] = []
        self.cache.activate_past_recording()

    @property
    def length(self) -> int:
        """See `KVCache.length`."""
        return len(self.read)

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """See `KVCache.append`; rows are token ids `[n]`."""
        if parents is not None:
            raise Unsupported(f"{self.name} takes no trees")
        if len(tokens):
            read(self.model, self.read, tokens, self.cache)
            self.read += tokens

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        if not self.cache.is_croppable:
            raise Unsupported(f"{self.name} says that it cannot be cropped; assisted generation refuses it too")
        self.cache.crop(length - self.length)
        del self.read[length:]

    def gather(self, path: Sequence[int]) -> None:
        """See `KVCache.gather`."""
        raise Unsupported(f"{self.name} takes no trees")

    def visible(self) -> npt.NDArray[Any]:
        """See `KVCache.visible`: `[length, ...]`, keys and values of all layers side by side.

        Layers that keep a window have zeros before it, and NaN where an entry is missing that the next token should see. The
        state of a layer without positions stands in the last row.
        """
        if not self.length:
            return np.zeros((0, 1))
        rows = [columns for layer in self.cache.layers for columns in self._columns(layer)]
        return np.concatenate(rows, axis=1)

    def _columns(self, layer: Any) -> list[npt.NDArray[Any]]:
        found = []
        for states in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if states is not None and states.dim() == 4:
                if isinstance(layer, transformers.StaticLayer):
                    states = states[:, :, : min(self.length, states.shape[2])]
                entries = states[0].transpose(0, 1).reshape(states.shape[2], -1).numpy()
                window = getattr(layer, "sliding_window", None)
                due = self.length if window is None else min(self.length, window - 1)
                column = np.zeros((self.length, entries.shape[1]))
                column[self.length - due :] = np.nan
                kept = min(due, len(entries))
                column[self.length - kept :] = entries[len(entries) - kept :]
                found.append(column)
        for index, states in (getattr(layer, "conv_states", None) or {}).items():
            size = layer.conv_kernel_size[index]
            if states is not None and size is not None:
                column = np.zeros((self.length, states.shape[1] * size))
                kept = states[0, :, -size:].numpy()
                column[-1] = np.pad(kept, ((0, 0), (size - kept.shape[1], 0))).ravel()
                found.append(column)
        return found


def read(model: Any, before: Sequence[int], tokens: Sequence[int], cache: Any) -> Any:
    """One pass over `tokens`, which follow the cached `before`, prepared as `generate` prepares it. The model's output."""
    ids = torch.tensor([[token % V for token in (*before, *tokens)]])
    with torch.inference_mode():
        inputs = model.prepare_inputs_for_generation(
            ids,
            next_sequence_length=len(tokens) if before else None,
            is_first_iteration=not before,
            cache=cache,
            attention_mask=torch.ones_like(ids),
            position_ids=torch.arange(ids.shape[1])[None],
            use_cache=True,
        )
        return model(**inputs)


class ModelCaches:
    """Makes caches of one kind in front of a tiny model of one architecture."""

    trees = False

    def __init__(self, architecture: str, kind: str) -> None:
        self.architecture, self.kind = architecture, kind
        self.name = f"{kind} cache, {architecture}"

    @functools.cached_property
    def tolerance(self) -> float:
        """4 times the largest difference between two ways without speculation: at once, and in passes as rounds make them; with
        a cap. The largest of a few sequences is far below that of many, and would accuse the innocent.
        """
        if self.kind == "quantized":
            return 0.0
        rng = np.random.default_rng(0)
        apart = 0.0
        for _ in range(MEASURED):
            tokens = rng.integers(V, size=24).tolist()
            at_once, in_passes = self.make(), self.make()
            at_once.append(tokens)
            while in_passes.length < len(tokens):
                first = in_passes.length
                in_passes.append(tokens[first : first + int(rng.integers(1, 6))])
            apart = max(apart, float(np.abs(at_once.visible() - in_passes.visible()).max()))
        return min(4 * apart, MARGIN_CAPS["float32"])

    def make(self) -> ModelCache:
        """See `CacheSource.make`."""
        model = tiny(self.architecture)
        config = model.config.get_text_config(decoder=True)
        if self.kind == "static":
            cache: Any = transformers.StaticCache(config=config, max_cache_len=LONGEST)
        elif self.kind == "quantized":
            cache = transformers.QuantizedCache(backend="fp8", config=config)
        else:
            cache = transformers.DynamicCache(config=config)
        return ModelCache(model, cache, self.name)


def caches() -> Sequence[ModelCaches]:
    """The default share of architectures and kinds of cache."""
    return [ModelCaches(architecture, kind) for kind, architecture in DEFAULT]


def every_cache() -> Sequence[ModelCaches]:
    """Every architecture with every kind of cache."""
    return [ModelCaches(architecture, kind) for kind in KINDS for architecture in ARCHITECTURES]
