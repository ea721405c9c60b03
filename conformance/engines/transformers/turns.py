"""The caches that earlier turns left behind: `generate` takes one with the whole text of the next turn."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from conformance.protocols import Mode, Tokens

MOST = 32
"""Turns that are kept: the last ones."""


class Turns:
    """What `generate` handed back in one mode, by the text that it had read or written."""

    def __init__(self, model: Any) -> None:
        self._model, self._mode = model, ""
        self._kept: dict[Tokens, Any] = {}

    def keep(self, mode: Mode, text: Tokens, cache: Any) -> None:
        """Keep the cache of a turn: `text` is its prompt with its answer."""
        if mode.name != self._mode:
            self._mode = mode.name
            self._kept.clear()
        self._kept[text] = cache
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]

    def cache_for(self, mode: Mode, prompt: Tokens) -> Any:
        """A copy of the cache of the turn that the prompt goes on from; else a new one that has read its first half."""
        if mode.name == self._mode:
            for text, cache in self._kept.items():
                if len(text) < len(prompt) and prompt[: len(text)] == text:
                    return copy.deepcopy(cache)  # a turn may be gone on from more than once
        return cache_of(self._model, prompt[: len(prompt) // 2])


def cache_of(model: Any, tokens: Sequence[int]) -> Any:
    """A new dynamic cache, which holds what the model has read of `tokens`."""
    cache = transformers.DynamicCache(config=model.config.get_text_config(decoder=True))
    if tokens:
        with torch.inference_mode():
            model(input_ids=torch.tensor([list(tokens)]), cache=cache, use_cache=True)
    return cache
